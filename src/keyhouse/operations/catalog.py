"""The served part of a schema: records, counters and logs by name, with key fields and indexes.

The store's own rows (versions, jobs) are not served. The state of a log and the counter of its
sequence are read-only: only `append` writes them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.errors import AccessError, DeclarationError, NotFoundError, RecordError, UsageError
from keyhouse.keys.proof import example
from keyhouse.keys.segment import Segment
from keyhouse.operations.fields import field_of_json, field_of_text, is_text
from keyhouse.schema import (
    Counter,
    Derived,
    Index,
    Log,
    Record,
    Schema,
)
from keyhouse.schema.index_names import derived_names
from keyhouse.schema.private_fields import private_fields

__all__ = [
    "KINDS",
    "Catalog",
    "Fields",
    "Kind",
    "Protocol",
    "RecordSettings",
    "ServedDerived",
    "ServedRecord",
]

RESERVED: Final = frozenset({"order", "record"})
"""Parameters of requests that are not arguments of the store, whose names no key field has."""

_EXAMPLE_DAY: Final = "2026-01-31"
_NAME: Final = re.compile("[A-Za-z0-9_-]+")

Kind = Literal["record", "counter", "log"]
KINDS: Final[tuple[Kind, ...]] = ("record", "counter", "log")
Protocol = Literal["http", "nats"]
Fields = dict[str, Any]


D = TypeVar("D", bound=Derived)


class RecordSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The access to one record, counter or log: `[recipes.records.secret]`."""

    http: bool = True
    nats: bool = True
    read_only: bool = False


class ServedDerived(Generic[D]):
    """A derived row: its name, and its key fields in order. `private`: those that may hold private
    members of its record."""

    def __init__(self, name: str, record: Record[Any], row: D, bound: frozenset[str]) -> None:
        self.name = name
        self.row = row
        self.private = private_fields(row, record.private, record.template)
        self.segments = _segments(row, bound)
        self.fields = tuple(self.segments)

    def value_of_text(self, name: str, text: str) -> Any:
        return field_of_text(name, self.segments[name], text)

    def of_json(self, fields: Mapping[str, Any]) -> Fields:
        """Return the key fields of a JSON object. Raises UsageError for unknown ones."""
        return _of_json(self.segments, fields)


class ServedRecord:
    """A record, counter or log: its name, key fields and indexes, and whether it may be written."""

    def __init__(
        self, record: Record[Any], bound: frozenset[str], settings: RecordSettings, *, inner: bool
    ) -> None:
        self.record = record
        self.name = record.name
        self.kind: Kind = (
            "counter"
            if isinstance(record, Counter)
            else "log"
            if isinstance(record, Log)
            else "record"
        )
        self.settings = settings
        self.is_writable = not (settings.read_only or inner)
        self.segments = _segments(record, bound)
        self.fields = tuple(self.segments)
        """The fields of its address, in order."""
        self.is_shown_whole = not (record.private or record.unknown or record.keeps_unknown)
        """Its values are encoded as they are: none has private or unknown members."""
        self._plain_fields = frozenset(
            [name for name, segment in self.segments.items() if is_text(segment)]
        )
        self.derived = {
            name: ServedDerived(name, record, row, bound)
            for name, row in derived_names(record).items()
        }
        self._rows: dict[type[Derived], Any] = {}
        self.indexes = self.rows(Index)
        self.members = {
            name: record.json.member(source)
            for name in self.segments
            if isinstance(source := record.fields.get(name, name), str)
            and source in record.attributes
        }
        """Key fields that are members of the value, by field."""
        self._generated = [
            name
            for name in self.members
            if record.fields.get(name, name) in record.unbound.generated
        ]

    def rows(self, kind: type[D]) -> dict[str, ServedDerived[D]]:
        """Return the derived rows of a class, by name."""
        rows: Any = self._rows.get(kind)
        if rows is None:
            rows = {name: row for name, row in self.derived.items() if isinstance(row.row, kind)}
            self._rows[kind] = rows
        return rows  # type: ignore[no-any-return]  # the rows of this class

    def check_access(self, protocol: Protocol, *, write: bool) -> None:
        """Raise AccessError if the settings close the record to a protocol, or if it is to be
        written and is read-only."""
        if not getattr(self.settings, protocol):
            raise AccessError(
                "The settings of the service close this record to its callers.",
                record=self.name,
                protocol=protocol,
            )
        if write and not self.is_writable:
            raise AccessError("This record is read-only.", record=self.name)

    def check_shown(self, derived: ServedDerived[Any]) -> None:
        """Raise AccessError if a row may hold private members, and is not declared to be shown.

        All reads by a derived row ask this: keys and cursors hold the members in clear, and a
        filter, a lookup or a count finds them out.
        """
        if derived.private and not derived.row.shown:
            raise AccessError(
                "The derived row may hold private members, which a service does not show: declare"
                " the row with shown=True, or the field as an HMAC.",
                record=self.record.name,
                row=derived.row.template.text,
                fields=list(derived.private),
            )

    @property
    def order(self) -> str | None:
        """The field that the service assigns: the position of an event in its log."""
        return self.record.order if isinstance(self.record, Log) else None

    @property
    def given(self) -> tuple[str, ...]:
        """The key fields that the value does not hold: a new record needs them beside it."""
        held = self.record.holder
        return tuple(name for name in self.segments if held(name) is None and name != self.order)

    def set_by_store(self) -> Iterator[tuple[str, Any]]:
        """Yield the attributes that the store sets at each write, with a value of their type."""
        record = self.record
        if record.version is not None:
            yield record.version
        for name in (record.created, record.updated):
            if name is not None:
                yield name, record.times.format(0)
        if isinstance(record, Log) and record.order in record.attributes:
            yield record.order, 0 if record.sequence is not None else ""

    def example_fields(self) -> dict[str, Any]:
        """Return an address as JSON, for examples: a text field has its own name as value."""
        fields = self.record.template.parse(example(self.record.template)) or {}
        others = {
            name: _EXAMPLE_DAY if date in segment.takes else fields.get(name, name)
            for name, segment in self.segments.items()
            if not segment.is_text
        }
        return {name: msgspec.to_builtins(others.get(name, name)) for name in self.segments}

    def of_texts(self, texts: Fields) -> Fields:
        """Return key fields that were sent as text."""
        plain, segments = self._plain_fields, self.segments
        if len(plain) == len(segments):
            return texts
        return {
            name: text if name in plain else field_of_text(name, segments[name], text)
            for name, text in texts.items()
        }

    def of_json(self, fields: Mapping[str, Any]) -> Fields:
        """Return the key fields of a JSON object. Raises UsageError for unknown ones."""
        return _of_json(self.segments, fields)

    def with_members(self, fields: Fields, plain: Any, new_id: Callable[[], str]) -> Fields:
        """Return an address with the fields that only the value holds, and with new ids for those
        that the store generates."""
        if not isinstance(plain, dict):
            return fields
        held = {
            name: field_of_json(name, self.segments[name], plain[member])
            for name, member in self.members.items()
            if name not in fields and member in plain
        }
        for name in self._generated:
            if name not in fields and not held.get(name):
                held[name] = new_id()
        return {**fields, **held}

    def value_of(self, plain: Any, fields: Fields) -> Any:
        """Return the value of parsed JSON. Members that the address or the store gives may be left
        out; RecordError if one differs from the address."""
        if isinstance(plain, dict) and self.record.json.is_struct:
            plain = dict(plain)
            if self.order in self.members and self.members[self.order] in plain:
                raise RecordError(
                    "The position of an event is assigned by the service: leave it out.",
                    member=self.order,
                )
            for name, value in fields.items():
                if name not in self.members:
                    continue
                if name in self._generated and plain.get(self.members[name]) == "":
                    del plain[self.members[name]]
                plain.setdefault(self.members[name], msgspec.to_builtins(value))
            for name, value in self.set_by_store():
                plain.setdefault(self.record.json.member(name), value)
        value = self.record.json.strictly_accepted(plain)
        self.check_address(value, fields)
        return value

    def may_move(self, patch: Any) -> bool:
        """Return whether a merge patch may change a key field of the record."""
        held = [name for name in self.segments if self.record.holder(name) is not None]
        members = {self.members.get(name) for name in held}
        return None in members or not isinstance(patch, dict) or not members.isdisjoint(patch)

    def check_address(self, value: Any, fields: Fields) -> None:
        for name, given in fields.items():
            held = self.record.holder(name)
            if held is None or name not in self.segments:
                continue
            if not _is_same(self.segments[name], held(value), given):
                raise RecordError(
                    "The value has another address than the request.",
                    field=name,
                    address=given,
                    value=held(value),
                )


class Catalog:
    """The served records of a schema by name, and the rules of access to them."""

    def __init__(self, schema: Schema, settings: Mapping[str, RecordSettings]) -> None:
        self.schema = schema
        bound = frozenset(schema.fixed) | frozenset(filter(None, [schema.space.field]))
        own = schema.meta.records if schema.meta is not None else ()
        served = [each for each in schema.records if not any(each is one for one in own)]
        inner = [log.state for log in served if isinstance(log, Log)]
        inner += [log.sequence for log in served if isinstance(log, Log)]
        if unknown := sorted(set(settings) - {each.name for each in served}):
            raise UsageError(
                "The settings name a record that the schema does not have.",
                setting=f"{schema.name}.records.{unknown[0]}",
                **nearest(unknown[0], [each.name for each in served]),
            )
        for each in served:
            _check_names(each)
        self._served = {
            each.name: ServedRecord(
                each,
                bound,
                settings.get(each.name, RecordSettings()),
                inner=any(each is one for one in inner),
            )
            for each in served
        }

    @property
    def every(self) -> Sequence[ServedRecord]:
        """All records, counters and logs, also those that the settings close."""
        return [*self._served.values()]

    def all(self, protocol: Protocol, *kinds: Kind) -> Sequence[ServedRecord]:
        """Return what a protocol serves of these kinds, or of all."""
        return [
            each
            for each in self._served.values()
            if getattr(each.settings, protocol) and (not kinds or each.kind in kinds)
        ]

    def check_clear(self, protocol: Protocol) -> None:
        """Raise AccessError if the space must not be cleared, since a record is closed or
        read-only."""
        for each in self._served.values():
            if each.settings.read_only or not getattr(each.settings, protocol):
                raise AccessError(
                    "A record is closed or read-only here, so the space cannot be cleared.",
                    record=each.name,
                )

    def find(
        self, protocol: Protocol, name: object, *kinds: Kind, write: bool = False
    ) -> ServedRecord:
        """Return one by name. Raises NotFoundError if there is none of these kinds, and AccessError
        if it is closed, or is to be written and is read-only."""
        served = self._served.get(name) if isinstance(name, str) else None
        if served is not None and (not kinds or served.kind in kinds):
            served.check_access(protocol, write=write)
            return served
        what = kinds[0] if len(kinds) == 1 else "record"
        raise NotFoundError(
            f"The schema has no such {what}.",
            name=name,
            **nearest(name, [each.name for each in self.all(protocol, *kinds)]),
        )


def _check_names(record: Record[Any]) -> None:
    """Raise DeclarationError if a request could not name a field or the record itself."""
    for template in record.templates:
        if taken := sorted(RESERVED & set(template.fields)):
            raise DeclarationError(
                "A key field of a served schema must not have the name of a parameter.",
                record=record.name,
                field=taken[0],
                reserved=sorted(RESERVED),
            )
    if not _NAME.fullmatch(record.name):
        raise DeclarationError(
            "A record of a served schema needs a name of letters, digits, _ and -: declare `name`.",
            record=record.name,
            suggested=re.sub("[^A-Za-z0-9_-]+", "-", record.name).strip("-") or "record",
        )


def _segments(declared: Any, bound: frozenset[str]) -> dict[str, Segment]:
    template = declared.template
    return {
        name: segment
        for name, segment in zip(template.fields, template.segments, strict=True)
        if name not in bound
    }


def _of_json(segments: Mapping[str, Segment], fields: Mapping[str, Any]) -> Fields:
    for name in fields:
        if name not in segments:
            raise UsageError("The key has no such field.", field=name, **nearest(name, segments))
    return {name: field_of_json(name, segments[name], value) for name, value in fields.items()}


def _is_same(segment: Segment, one: object, other: object) -> bool:
    if one == other:
        return True
    try:
        return segment.format(one) == segment.format(other)
    except ValueError:
        return False
