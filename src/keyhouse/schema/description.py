"""Describe a schema as plain values, for output as Markdown, JSON or on a terminal.

Everything is derived from the declarations; nothing is written by hand for one schema.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import FromAttribute, Source
from keyhouse.schema.derived import BoundDerived
from keyhouse.schema.expiry import Expiry
from keyhouse.schema.links import Link, Owner, Reference
from keyhouse.schema.log import Log
from keyhouse.schema.record import BoundRecord
from keyhouse.schema.schema import Schema
from keyhouse.schema.shape import shape
from keyhouse.schema.space import Space

__all__ = [
    "FieldText",
    "MigrationText",
    "RecordText",
    "RowText",
    "SchemaText",
    "describe",
    "member_name",
    "prose",
    "seconds_text",
    "space_text",
]

_EXAMPLE_TIME = 1_768_737_600_000


class FieldText(msgspec.Struct, frozen=True):
    """A key field: its type, and its source if that is not the record's field of the same name."""

    name: str
    type: str
    source: str = ""


class RowText(msgspec.Struct, frozen=True):
    """A derived row. `notes` are further sentences, each with a label."""

    kind: str
    key: str
    fields: list[FieldText]
    value: str
    notes: dict[str, str] = {}


class RecordText(msgspec.Struct, frozen=True):
    name: str
    kind: str
    doc: str
    key: str
    fields: list[FieldText]
    value: str
    notes: dict[str, str]
    derived: list[RowText]


class MigrationText(msgspec.Struct, frozen=True):
    id: int
    description: str
    over: str


class OverlapText(msgspec.Struct, frozen=True):
    """Templates of which scans of the one would meet keys of the other: they filter by shape."""

    scanned: str
    within: str


class OperationText(msgspec.Struct, frozen=True):
    name: str
    access: str
    doc: str
    request: str | None
    reply: str | None


class SchemaText(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    doc: str
    space: str
    fixed: dict[str, str]
    version: int
    records: list[RecordText]
    overlaps: list[OverlapText]
    migrations: list[MigrationText]
    operations: list[OperationText]


@lru_cache(maxsize=32)
def describe(schema: Schema) -> SchemaText:
    """Describe a schema. The texts are shared by all callers."""
    return SchemaText(
        name=schema.name,
        doc=prose(schema.doc),
        space=space_text(schema.space),
        fixed=schema.fixed,
        version=schema.version,
        records=[_record_text(record) for record in schema.unbound.records()],
        overlaps=[
            OverlapText(*(schema.unbound.bound(each).template.text for each in overlap))
            for overlap in schema.overlaps
        ],
        migrations=[
            MigrationText(each.id, prose(each.description), each.over.name)
            for each in schema.migrations
        ],
        operations=[
            OperationText(
                each.name,
                each.access,
                prose(each.doc),
                None if each.request is None else shape(each.request),
                None if each.reply is None else shape(each.reply),
            )
            for each in schema.operations
        ],
    )


def _record_text(bound: BoundRecord[Any]) -> RecordText:
    record = bound.declared
    return RecordText(
        name=record.name,
        kind=record.kind,
        doc=prose(record.doc),
        key=bound.template.text,
        fields=[
            FieldText(field.name, field.type, _source(record.type, record.fields.get(field.name)))
            for field in _fields(bound.template)
        ],
        value=shape(record.type, unknown=record.unknown),
        notes=dict(_notes(bound)),
        derived=[_row_text(derived, record.type) for derived in bound.derived],
    )


def _row_text(bound: BoundDerived, type_: Any) -> RowText:
    derived = bound.declared
    sources = {name: _source(type_, source) for name, source in derived.fields.items()}
    sources |= {
        name: f"each of several, {_source(type_, source)}" for name, source in derived.each.items()
    }
    fields = [
        FieldText(field.name, field.type, sources.get(field.name, ""))
        for field in _fields(bound.template)
    ]
    notes = (
        {}
        if derived.when is None
        else {"only when": _purpose(derived.when) or "a condition on the record holds"}
    )
    return RowText(derived.kind, bound.template.text, fields, derived.value_text(), notes)


def space_text(space: Space) -> str:
    """Describe a space, and the names it may have."""
    text = f"A space is {space.description}"
    if space.name is not None:
        text += f"; there is one, `{space.name}`"
    elif space.segment is not None:
        text += f", named by {space.segment.description}"
    return text + (
        f". Its name is repeated in keys as `{{{space.field}}}`."
        if space.field is not None
        else "."
    )


def prose(text: str) -> str:
    """Return a docstring with each paragraph on one line, without indentation."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _fields(template: Template) -> list[FieldText]:
    return [
        FieldText(name, type_.description)
        for name, type_ in zip(template.fields, template.segments, strict=True)
    ]


def _source(type_: Any, source: Source | None) -> str:
    if source is None:
        return ""
    if not callable(source):
        return f"from `{member_name(type_, source)}`"
    if isinstance(source, FromAttribute):
        source = source.make
    return f"computed: {purpose}" if (purpose := _purpose(source)) else "computed from the record"


def _purpose(function: Callable[[Any], object]) -> str:
    """Return the first paragraph of a function's docstring, without "Return" or "Return whether",
    else its name; "" for a lambda, or a class such as `str`."""
    if isinstance(function, type):
        return ""
    doc = prose(function.__doc__ or "").partition("\n")[0].rstrip(".")
    doc = doc.removeprefix("Return ").removeprefix("whether ")
    name = getattr(function, "__name__", "<lambda>")
    return (doc[:1].lower() + doc[1:]) or ("" if name.startswith("<") else f"`{name}`")


def _notes(bound: BoundRecord[Any]) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences, in the order of the page."""
    record = bound.declared

    def named(*attributes: str | None) -> str:
        return ", ".join(
            f"`{member_name(record.type, name)}`" for name in attributes if name is not None
        )

    if bound.legacy is not None:
        yield (
            "legacy keys",
            f"`{bound.legacy.template.text}`: read where the key above has no row;"
            " a write moves the record",
        )
    if record.expiry is not None:
        yield "TTL", _expiry(record.expiry, named(record.expiry.field))
    if record.version is not None:
        yield (
            "version",
            f"{named(record.version[0])} is the version of the JSON, now {record.version[1]}",
        )
    if record.upgrade is not None:
        yield "older versions", _purpose(record.upgrade) or "are upgraded when they are read"
    stamps = ((record.created, "created"), (record.updated, "written"))
    if sentences := [
        f"{named(attribute)} when it is {event}"
        for attribute, event in stamps
        if attribute is not None
    ]:
        example = record.times.format(_EXAMPLE_TIME)
        yield "stamped", f"{' and '.join(sentences)}, such as `{example}`"
    if record.computed:
        yield "computed", named(*record.computed) + " from the other members, at each write"
    if record.timestamps is not None:
        example = record.times.format(_EXAMPLE_TIME)
        members = ", ".join(f"`{member}`" for member in record.timestamps.members)
        yield "times", f"{members}: checked when they are written, and stored as `{example}`"
    if bound.keeps_unknown:
        yield "other members", "are kept when the record is written again"
    if record.unknown is not None:
        yield "unknown members", "are stored unchanged"
    if record.private:
        yield "private", named(*record.private) + ": never visible outside the store"
    for label, kind in (("belongs to", Owner), ("refers to", Reference)):
        if linked := [link for link in record.links if isinstance(link, kind)]:
            yield label, "; ".join(map(_link_text, linked))
    if isinstance(record, Log):
        yield from _log_notes(record)


def _link_text(link: Link) -> str:
    """Name the record at the other end of a link, and the rows by which it finds its dependents."""
    by = "".join(f"`{index.template.text}`, " for index in link.by)
    return f"`{link.record.template.text}`" + (f", found by {by[:-2]}" if by else "")


def member_name(type_: Any, attribute: str) -> str:
    """Return the JSON name of an attribute, or of a path of attributes."""
    name, dot, rest = attribute.partition(".")
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return attribute
    for field in msgspec.structs.fields(type_):
        if field.name == name:
            return field.encode_name + dot + (member_name(field.type, rest) if rest else "")
    return attribute


def _log_notes(log: Log[Any]) -> Iterator[tuple[str, str]]:
    stream = ", ".join(f"`{name}`" for name in log.stream) or "the whole space"
    position = (
        "a ULID generated by the store"
        if log.sequence is None
        else f"the next number of `{log.sequence.template.text}`"
    )
    yield "stream", f"one for each {stream}, in the order of `{log.order}`: {position}"
    if log.state is not None:
        yield (
            "folds into",
            f"`{log.state.template.text}`, each event once, in the commit that appends it",
        )


def _expiry(expiry: Expiry, member: str) -> str:
    match expiry.mode:
        case "fixed":
            return f"{seconds_text(expiry.seconds)} after it is created"
        case "sliding":
            return f"{seconds_text(expiry.seconds)} after its last write"
        case "field":
            return f"until {member}"
    return "set by each write; without one, it does not expire"


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def seconds_text(seconds: int) -> str:
    """Format a duration in its largest whole unit: `30 days`."""
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0 or size == 1)
    count = seconds // size
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
