"""Checks of a record's declaration: names that do not exist, options that exclude each other, types
that need care."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

from msgspec import Struct, inspect

from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError
from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import Source
from keyhouse.schema.derived import BoundDerived, Derived
from keyhouse.schema.expiry import Expiry, check_seconds
from keyhouse.schema.index import Index
from keyhouse.schema.times import TimeFormat

RESERVED = frozenset(
    {
        "after",
        "between",
        "by",
        "caught_up",
        "cursor",
        "expect",
        "expires",
        "keys_only",
        "limit",
        "prefix",
        "reverse",
    }
    | {"since", "ttl", "unreadable"}
)
"""Arguments of the store's own methods: a key field can't have such a name."""


_SEQUENCES = (inspect.ListType, inspect.VarTupleType, inspect.CollectionType)


class CheckedRecord(Protocol):
    """The part of a Record that is checked."""

    name: str
    times: TimeFormat
    keeps_unknown: bool
    template: Template
    fields: dict[str, Source]
    computed: Any
    private: tuple[str, ...]
    sealed: tuple[str, ...]
    created: str | None
    updated: str | None
    unknown: str | None
    version: tuple[str, int] | None
    upgrade: Any
    expiry: Expiry | None
    derived: tuple[Derived, ...]

    @property
    def attributes(self) -> frozenset[str]: ...

    @property
    def templates(self) -> list[Template]: ...


def check_declaration(record: CheckedRecord) -> None:
    """Raise DeclarationError unless the record's options name what its type and its key have."""
    if record.expiry is not None and record.expiry.mode not in ("field", "write"):
        check_seconds(record.expiry.seconds, record.name)
    fields = {name for template in record.templates for name in template.fields}
    if taken := sorted(RESERVED & fields):
        raise DeclarationError(
            "These names are the store's own arguments: call the fields of the key otherwise.",
            record=record.name,
            fields=taken,
        )
    if unknown := sorted(set(_attributes_named(record)) - record.attributes):
        raise DeclarationError(
            "The record's type has no such attributes.",
            record=record.name,
            attributes=unknown,
            **nearest(unknown[0], record.attributes),
        )
    if record.upgrade is not None and record.version is None:
        raise DeclarationError("A record that upgrades needs a version.", record=record.name)
    _check_private(record)
    _check_sealed(record)


def check_shared_rows(record: CheckedRecord, rows: Sequence[BoundDerived]) -> None:
    """Raise DeclarationError if the record expires, and others may feed one of the rows that it
    shares as well."""
    for row in rows:
        if record.expiry is not None and (not row.has_one_holder or row.has_successors):
            raise DeclarationError(
                "A record that expires can't feed a row shared by several: that row would outlive"
                " it.",
                record=record.name,
                row=row.template.text,
            )


def _check_private(record: CheckedRecord) -> None:
    """Reject a private attribute in the record's key, which every answer shows."""
    for name in record.template.fields:
        source = record.fields.get(name, name)
        if (
            isinstance(source, str)
            and source.partition(".")[0] in record.private
            and not record.template.segment(name).is_hashed
        ):
            raise DeclarationError(
                "A private attribute must not be in its record's key, which is shown to callers: "
                "use another key, or write {name:hmac}.",
                record=record.name,
                attribute=source,
                template=record.template.text,
            )


def _check_sealed(record: CheckedRecord) -> None:
    """Reject a sealed attribute that would be stored in clear elsewhere: in a key, or in the value
    of an index."""
    sealed = set(record.sealed)
    fed = [
        (record.template, name, record.fields.get(name, name)) for name in record.template.fields
    ]
    for each in record.derived:
        fed += [
            (each.template, name, each.each.get(name, each.fields.get(name, name)))
            for name in each.template.fields
        ]
        if isinstance(each, Index) and each.value in sealed:
            raise DeclarationError(
                "A sealed attribute cannot be the value of an index.",
                record=record.name,
                attribute=each.value,
            )
    for template, name, source in fed:
        if (
            isinstance(source, str)
            and source.partition(".")[0] in sealed
            and not template.segment(name).is_hashed
        ):
            raise DeclarationError(
                "A sealed attribute feeds a key only as an HMAC: write {name:hmac}.",
                record=record.name,
                attribute=source,
                template=template.text,
            )
    marks = {record.created, record.updated, record.unknown, *(record.version or ())[:1]}
    if record.expiry is not None and record.expiry.mode == "field":
        marks.add(record.expiry.field.partition(".")[0])
    if used := sorted(sealed & marks):
        raise DeclarationError(
            "The store needs these attributes in clear: they cannot be sealed.",
            record=record.name,
            attributes=used,
        )


def _attributes_named(record: CheckedRecord) -> list[str]:
    """Return all attributes that the record's options name."""
    named = [
        *record.computed,
        *record.private,
        *record.sealed,
        *filter(None, (record.created, record.updated, record.unknown)),
    ]
    if record.version is not None:
        named.append(record.version[0])
    named += [path.partition(".")[0] for path in record.fields.values() if isinstance(path, str)]
    named += [
        each.value
        for each in record.derived
        if isinstance(each, Index) and _is_attribute(record, each.value)
    ]
    if record.expiry is not None and record.expiry.mode == "field":
        named.append(record.expiry.field.partition(".")[0])
    return named


def _is_attribute(record: CheckedRecord, value: str | None) -> TypeGuard[str]:
    """Return whether an index's value must be an attribute, because it is not a field of the
    record's key."""
    if value is None or value not in record.template.fields:
        return value is not None
    if not record.template.segment(value).innermost.is_plain_json:
        raise DeclarationError(
            "A day or time cannot be read back from an index's value.",
            record=record.name,
            field=value,
        )
    return False


def members_to_check(info: inspect.Type) -> tuple[str, ...] | None:
    """Return the attributes of a Struct whose values JSON may change, so that each is checked;
    None: the whole value is."""
    if isinstance(info, inspect.StructType):
        seen = frozenset([info.cls])
        return tuple(field.name for field in info.fields if _may_change(field.type, seen))
    return None if _may_change(info) else ()


def members_to_check_first(info: inspect.Type) -> tuple[str, ...] | None:
    """Return those of `members_to_check` that must be checked before they are encoded.

    A float that is not a number becomes null, which is not read back as an equal value: where all
    that holds it is compared by its members, it is found then.
    """
    members = members_to_check(info)
    if members is None or not (isinstance(info, inspect.StructType) and _compares(info.cls)):
        return members
    types, seen = {field.name: field.type for field in info.fields}, frozenset([info.cls])
    return tuple(name for name in members if not _changes_visibly(types[name], seen))


def _changes_visibly(info: inspect.Type, seen: frozenset[object]) -> bool:
    """Return whether JSON changes a value of the type at most to one that is not equal to it, and
    the type cannot hold itself."""
    if not _may_change(info, seen) or isinstance(info, inspect.FloatType):
        return True
    if isinstance(info, inspect.StructType):
        inside = seen | {info.cls}
        return (
            info.cls not in seen
            and _compares(info.cls)
            and all(_changes_visibly(field.type, inside) for field in info.fields)
        )
    if isinstance(info, inspect.UnionType):
        return all(_changes_visibly(each, seen) for each in info.types)
    return isinstance(info, _SEQUENCES) and _changes_visibly(info.item_type, seen)


def _compares(kind: type) -> bool:
    """Return whether two Structs of the type are equal only if all their members are."""
    return bool(kind.__eq__ is Struct.__eq__)  # type: ignore[comparison-overlap]


def _may_change(info: inspect.Type, seen: frozenset[object] = frozenset()) -> bool:
    """Return whether a value of the type can hold what JSON would change: a float that is not a
    number, which becomes null, or itself, which nests too deep."""
    if isinstance(info, (inspect.FloatType, inspect.AnyType)):
        return True
    if isinstance(
        info,
        (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType, inspect.TypedDictType),
    ):
        if info.cls in seen:
            return True
        return any(_may_change(field.type, seen | {info.cls}) for field in info.fields)
    parts = [
        getattr(info, name)
        for name in ("item_type", "key_type", "value_type")
        if hasattr(info, name)
    ]
    parts += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return any(_may_change(part, seen) for part in parts)
