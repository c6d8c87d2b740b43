"""The declarations of a schema as requests name them: records, indexes and key fields."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from keyhouse.keys.hmac_segment import INDEX_KEY
from keyhouse.keys.template import UNKNOWN
from keyhouse.schema import BoundDerived, Counter, Declared, Derived, Index, Log, Record, Schema
from keyhouse.schema.index_names import index_name
from keyhouse.store import Entry, Event
from keyhouse.store.arguments import lookup_key

__all__ = ["AddressBook", "Item", "RecordAddress"]

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

_ANY_KEY: Final = bytes(32)
"""Stands for the key of an HMAC, which the service has: its fields are checked, never sent so."""

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
    """Names declarations in requests, and makes entries of items.

    Calls are checked by the binding of a Store, so they raise the same errors, without a request. A
    space whose name only the token has, and the key of an HMAC, are not known here.
    """

    def __init__(self, schema: Schema, space: str | None = None) -> None:
        self.schema = schema
        name, field = space or schema.space.name, schema.space.field
        own: dict[str, object] = {} if field is None else {field: UNKNOWN}
        if name is not None:
            own = schema.space.bound(name)
        self.binding = schema.bind({**schema.fixed, **own, INDEX_KEY: _ANY_KEY})
        self._bound = frozenset(schema.fixed) | frozenset(filter(None, [schema.space.field]))

    def record(self, record: Record[T]) -> Record[T]:
        """Return the record of the schema that a handle stands for."""
        self.binding.record(record)
        owner = self.schema.record_of(record)
        assert isinstance(owner, Record), "the binding has it"
        return owner

    def kind(self, record: Record[Any]) -> str:
        if isinstance(record, Counter):
            return "counter"
        return "log" if isinstance(record, Log) else "record"

    def names(self, declared: Any) -> tuple[str, ...]:
        """Return the key fields that a request gives, in order."""
        return tuple([name for name in declared.template.fields if name not in self._bound])

    def of(self, record: Record[Any], fields: Mapping[str, Any]) -> RecordAddress:
        """Return the address of all key fields."""
        owner = self.record(record)
        self.binding.record(record).template.build(fields)
        return RecordAddress(self.kind(owner), owner.name, self._given(owner, fields))

    def of_row(self, row: Derived, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return all key fields of a derived row, as a request has them."""
        self.binding.derived(row).template.build(fields)
        return dict(self._given(row, fields))

    def with_ids(self, record: Record[T], value: T, new_id: Callable[[], str]) -> T:
        """Return a value with the ids that a store would generate, so that a repeated request
        writes the same record."""
        owner = self.record(record)
        if not owner.unbound.generated or not isinstance(value, owner.type):
            return value
        return owner.unbound.with_ids(value, new_id)

    def of_value(self, record: Record[T], value: T, fields: Mapping[str, Any]) -> RecordAddress:
        """Return the address of a value: its key fields, and those given."""
        owner, bound = self.record(record), self.binding.record(record)
        if bound.json.is_struct and not isinstance(value, bound.type):
            raise bound.json.other_type(value)
        value = bound.compute(value)
        bound.address(value, fields)
        held = {
            name: holder(value)
            for name in self.names(owner)
            if (holder := owner.holder(name)) is not None
        }
        return RecordAddress(self.kind(owner), owner.name, self._given(owner, {**held, **fields}))

    def _given(self, row: Declared, fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple([(name, _plain(fields[name])) for name in self.names(row)])

    def row(
        self, derived: D, kind: type[BoundDerived] = BoundDerived
    ) -> tuple[Record[Any], str, D]:
        """Return the record of a derived row, the name of the row, and the row of the schema."""
        row = self.binding.derived(derived, kind).declared
        owner = self.schema.record_of(row)
        assert owner is not None
        return owner, index_name(owner, row), cast("D", row)

    def target(self, declared: Declared) -> tuple[dict[str, Any], Any]:
        """Return the members of a request that name a record or a derived row, and what they
        name."""
        if isinstance(declared, Derived):
            owner, by, row = self.row(declared)
            return {self.kind(owner): owner.name, "by": by}, row
        owner = self.record(declared)
        return {self.kind(owner): owner.name}, owner

    def index(self, record: Record[Any], by: Index) -> tuple[str, Index]:
        """Return the name of an index of a record, and the index of the schema."""
        self.binding.index(record, by)
        _, name, index = self.row(by)
        return name, index

    def lookup(self, record: Record[Any], by: Index, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key fields of a row that a lookup follows, as a request has them."""
        bound, index = self.binding.index(record, by)
        lookup_key(bound, index, fields)
        return self.of_row(by, fields)

    def filters(
        self, declared: Declared, fields: Mapping[str, Any], prefix: Any, between: Any
    ) -> dict[str, Any]:
        """Return the filters of a list: leading fields, and the range of the next one."""
        bound = self.binding.bound(declared)
        bound.template.range(fields, prefix=prefix, between=between)
        named: dict[str, Any] = {name: _plain(value) for name, value in fields.items()}
        if prefix is None and between is None:
            return named
        following = bound.template.fields[len(fields)]
        if prefix is not None:
            return {**named, f"{following}.prefix": prefix}
        for name, bound_value in zip(("from", "to"), between, strict=True):
            if bound_value is not None:
                named[f"{following}.{name}"] = _plain(bound_value)
        return named

    def entry(self, record: Record[T], item: Item, local: Any = msgspec.UNSET) -> Entry[T]:
        """Return the entry of an item. `local` is the plain value that was sent: it has the members
        that a service does not show."""
        owner = self.record(record)
        value = item.get("value", local)
        if isinstance(value, dict) and isinstance(local, dict):
            value = {**local, **value}
        names, values = self._key(owner, item)
        data = msgspec.json.encode(value)
        decoded, stored = (
            owner.json.decode(data, item["key"]),
            data if owner.keeps_unknown else None,
        )
        return Entry(decoded, item["key"], values, item["revision"], _expires(item), names, stored)

    def event(self, record: Record[T], item: Item, *, gone: bool) -> Event[T]:
        """Return the event of an item."""
        owner = self.record(record)
        names, values = self._key(owner, item)
        value: Any = None
        stored: bytes | None = None
        if not gone:
            data = msgspec.json.encode(item.get("value"))
            value = owner.json.decode(data, item["key"])
            stored = data if owner.keeps_unknown else None
        expires = _expires(item)
        return Event(value, item["key"], values, item["revision"], expires, gone, names, stored)

    def key_fields(self, owner: Record[Any], item: Item) -> Mapping[str, Any]:
        """Return the key fields of an item, or of a row that the service does not decode."""
        return self.schema.unbound.record(owner).template.parse(item["key"]) or item.get(
            "fields", {}
        )

    def _key(self, owner: Record[Any], item: Item) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        names = self.names(owner)
        parsed = self.key_fields(owner, item)
        return names, tuple([parsed[name] for name in names])


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _expires(item: Item) -> int | None:
    text = item.get("expires_at")
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1_000)
