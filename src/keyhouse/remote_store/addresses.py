"""The declarations of a schema as requests name them: records, indexes and key fields."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.keys.blind_segment import Blind
from keyhouse.schema import Counter, Declared, Derived, Index, Log, Record, Schema
from keyhouse.schema.index_names import index_name
from keyhouse.store import Entry, Event

__all__ = ["AddressBook", "Item", "RecordAddress"]

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

Item = dict[str, Any]
"""A record as a service sends it: key, fields, revision, expires_at and value."""


class RecordAddress(NamedTuple):
    """One record of a service: its kind and name, and its key fields in order."""

    kind: str
    record: str
    fields: tuple[tuple[str, Any], ...]

    @property
    def target(self) -> dict[str, Any]:
        """The members of a request that name it."""
        return {self.kind: self.record, "fields": dict(self.fields)}


class AddressBook:
    """Names declarations in requests, and makes entries of items."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._bound = frozenset(schema.fixed) | frozenset(filter(None, [schema.space.field]))

    def record(self, record: Record[T]) -> Record[T]:
        """Return the record of the schema that a handle stands for."""
        owner = self.schema.owner(record)
        if owner is None or not isinstance(record, Record):
            raise UsageError(
                "The schema of this store has no such declaration.",
                given=repr(record),
                schema=self.schema.name,
            )
        return owner

    def kind(self, record: Record[Any]) -> str:
        if isinstance(record, Counter):
            return "counter"
        return "log" if isinstance(record, Log) else "record"

    def names(self, declared: Any) -> tuple[str, ...]:
        """Return the key fields that a request gives, in order."""
        return tuple([name for name in declared.template.fields if name not in self._bound])

    def of(self, record: Record[Any], fields: Mapping[str, Any]) -> RecordAddress:
        """Return the address of all key fields. Raises as a template does for others."""
        owner = self.record(record)
        given = self.of_row(owner, fields)
        return RecordAddress(self.kind(owner), owner.name, tuple(given.items()))

    def of_row(self, row: Declared, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return all key fields of a record or a derived row, as a request has them. Raises as a
        template does for others."""
        names = self.names(row)
        if unknown := sorted(set(fields) - set(names)):
            raise UsageError("The key has no such fields.", fields=unknown, key=row.template.text)
        for name in names:
            if name not in fields:
                raise KeyFieldError(
                    "The key needs a field that was not given.", field=name, key=row.template.text
                )
            self._check(row, name, fields[name])
        return {name: _plain(fields[name]) for name in names}

    def of_value(self, record: Record[T], value: T, fields: Mapping[str, Any]) -> RecordAddress:
        """Return the address of a value: its key fields, and those given."""
        owner = self.record(record)
        if owner.is_struct and not isinstance(value, owner.type):
            raise owner.other_type(value)
        value = owner.compute(value)
        held = {
            name: holder(value)
            for name in self.names(owner)
            if (holder := owner.holder(name)) is not None
        }
        for name, given in fields.items():
            if name in held and held[name] != given:
                raise KeyFieldError(
                    "The record has another value there.",
                    field=name,
                    given=given,
                    record=held[name],
                )
        return self.of(record, {**held, **fields})

    def row(self, derived: Derived, kind: type[D]) -> tuple[Record[Any], str, D]:
        """Return the record of a derived row, the name of the row, and the row of the schema."""
        for owner in self.schema.records:
            for each in owner.derived:
                if each is derived and isinstance(each, kind):
                    return owner, index_name(owner, each), each
        raise UsageError(
            "The schema of this store has no such declaration.",
            given=repr(derived),
            needed=kind.__name__,
            schema=self.schema.name,
        )

    def target(self, declared: Declared) -> tuple[dict[str, Any], Any]:
        """Return the members of a request that name a record or a derived row, and what they
        name."""
        if isinstance(declared, Derived):
            owner, by, row = self.row(declared, Derived)
            return {self.kind(owner): owner.name, "by": by}, row
        owner = self.record(declared)
        return {self.kind(owner): owner.name}, owner

    def index(self, record: Record[Any], by: Index) -> tuple[str, Index]:
        """Return the name of an index of a record, and the index of the schema."""
        owner = self.record(record)
        for one, other in zip(record.derived, owner.derived, strict=True):
            if isinstance(other, Index) and (one is by or other is by):
                return index_name(owner, other), other
        raise UsageError("The record has no such index.", record=owner.name, given=repr(by))

    def filters(
        self, declared: Any, fields: Mapping[str, Any], prefix: Any, between: Any
    ) -> dict[str, Any]:
        """Return the filters of a list: leading fields, and the range of the next one."""
        names = self.names(declared)
        if unknown := sorted(set(fields) - set(names)):
            raise UsageError(
                "The key has no such fields.", fields=unknown, key=declared.template.text
            )
        found: dict[str, Any] = {name: _plain(value) for name, value in fields.items()}
        if prefix is None and between is None:
            return found
        following = next((name for name in names if name not in fields), None)
        if following is None or (prefix is not None and between is not None):
            raise UsageError(
                "A range or a prefix narrows the field after those given, one of them at a time.",
                fields=sorted(fields),
                key=declared.template.text,
            )
        if prefix is not None:
            return {**found, f"{following}.prefix": prefix}
        if not isinstance(between, tuple) or len(between) != 2:
            raise UsageError("A range is a pair: between=(low, high).", between=between)
        for name, bound in zip(("from", "to"), between, strict=True):
            if bound is not None:
                found[f"{following}.{name}"] = _plain(bound)
        return found

    def entry(self, record: Record[T], item: Item, local: Any = msgspec.UNSET) -> Entry[T]:
        """Return the entry of an item. `local` is the plain value that was sent: it has the members
        that a service does not show."""
        owner = self.record(record)
        value = item.get("value", local)
        if isinstance(value, dict) and isinstance(local, dict):
            value = {**local, **value}
        names, values = self._key(owner, item)
        data = msgspec.json.encode(value)
        decoded, stored = owner.decode(data, item["key"]), data if owner.keeps_unknown else None
        return Entry(decoded, item["key"], values, item["revision"], _expires(item), names, stored)

    def event(self, record: Record[T], item: Item, *, gone: bool) -> Event[T]:
        """Return the event of an item."""
        owner = self.record(record)
        names, values = self._key(owner, item)
        value: Any = None
        stored: bytes | None = None
        if not gone:
            data = msgspec.json.encode(item.get("value"))
            value = owner.decode(data, item["key"])
            stored = data if owner.keeps_unknown else None
        expires = _expires(item)
        return Event(value, item["key"], values, item["revision"], expires, gone, names, stored)

    def _key(self, owner: Record[Any], item: Item) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        names = self.names(owner)
        parsed = owner.template.parse(item["key"]) or item["fields"]
        return names, tuple([parsed[name] for name in names])

    def _check(self, owner: Declared, name: str, value: Any) -> None:
        segment = owner.template.segment(name)
        if isinstance(segment, Blind):
            return  # the service has the key of the HMAC
        try:
            segment.format(value)
        except ValueError as error:
            raise KeyFieldError(
                f"The field {error}.", field=name, value=value, key=owner.template.text
            ) from None


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _expires(item: Item) -> int | None:
    text = item.get("expires_at")
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1_000)
