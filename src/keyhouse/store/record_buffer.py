"""The reading half of a transaction: records by key, as the transaction sees them."""

from collections.abc import Mapping, Sequence
from typing import Any, Never, TypeVar

from keyhouse.arguments import unnamed_fields
from keyhouse.counter import sum_of
from keyhouse.errors import UnreadableError
from keyhouse.schema import Counter, Index, Keys, Record
from keyhouse.store.entry import Entry
from keyhouse.store.linked_rows import LinkedRows

T = TypeVar("T")


class RecordBuffer(LinkedRows):
    """Records in the rows that a transaction has read and will write."""

    __slots__ = ()

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        if positional:
            raise unnamed_fields(record, positional)
        found = await self.entry(record, **fields)
        if found is None and isinstance(record, Counter):
            return 0  # type: ignore[return-value]  # a Counter's T is int
        return None if found is None else found.record

    async def entry(
        self, record: Record[T], /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        return await self.entry_at(bound, key, key_values(bound, key, fields))

    async def get_each(
        self, *addresses: tuple[Record[Any], Mapping[str, Any]], ahead: Sequence[str] = ()
    ) -> list[Any]:
        """Return the records at these addresses, in their order, by one read of the engine; None
        for an absent one. The rows `ahead` are read with them, for later. A record that has legacy
        keys is read alone, at both.

        An address is a record and its key fields: `get_each((BOOK, {"id": "a"}), (USER, {"id":
        "u"}))`.
        """
        found = [
            (bound := self.binding.record(record), bound.template.build(fields))
            for record, fields in addresses
        ]
        rows, writes = self._rows, self._writes
        keys = [key for bound, key in found if bound.legacy is None]
        keys.extend(ahead)
        missing = [key for key in keys if key not in rows and key not in writes]
        if missing:
            for key, row in zip(
                missing, await self._engine.read(self._space, missing), strict=True
            ):
                rows.setdefault(key, row)
        values: list[Any] = []
        for bound, key in found:
            entry = (
                self._live(bound, self.seen(bound, key, ()))
                if bound.legacy is None
                else await self.entry_at(bound, key, ())
            )
            absent = 0 if isinstance(bound, Counter) else None
            values.append(absent if entry is None else entry.record)
        return values

    async def lookup(
        self, record: Record[T], by: Index, /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None."""
        if positional:
            raise unnamed_fields(by, positional)
        bound, index = self.binding.index(record, by)
        key = index.template.build(fields)
        if (written := await self.row(key)) is None:
            return None
        values, owner = index.owner_at(key, written[0])
        found = await self.entry_at(bound, owner, values)
        return found if found is not None and key in index.rows(found.record, values) else None

    async def stored_key(self, bound: Record[Any], key: str) -> str:
        """Return the key at which a bound record is: its legacy key while there is no row at its
        current one."""
        if bound.legacy is None:
            return key
        legacy = bound.legacy_key(key)
        is_first_read = key not in self._rows and legacy not in self._rows
        await self.prefetch((legacy, key))
        if is_first_read and self._rows[key] is None and self._rows[legacy] is None:
            # the rows of one read are not of one moment: it may have moved in between
            [self._rows[key]] = await self._engine.read(self._space, (key,))
        is_legacy = await self.row(key) is None and await self.row(legacy) is not None
        return legacy if is_legacy else key

    async def entry_at(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return a bound record by its key, or None."""
        return self._live(bound, await self._stored(bound, key, keys))

    async def _stored(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return the record in the row, even if it has expired by its own field."""
        if bound.legacy is not None:
            key = await self.stored_key(bound, key)
        if key not in self._rows and key not in self._writes:
            await self._read(key)
        return self.seen(bound, key, keys)

    def _live(self, bound: Record[T], entry: Entry[T] | None) -> Entry[T] | None:
        """Return the entry of a record that has not expired by its own field."""
        if entry is None or not bound.expires_by_field:
            return entry
        expires = bound.field_expiry(entry.record, entry.key)
        if expires is None:
            return entry
        if expires <= self._now:
            return None
        if self._live_until is None or expires < self._live_until:
            self._live_until = expires
        return entry

    def _replaced(self, bound: Record[T], stored: Entry[T] | None) -> Entry[T] | None:
        """Return the record that a write replaces. One whose expiry is not a time can be replaced
        and deleted."""
        try:
            return self._live(bound, stored)
        except UnreadableError:
            return stored

    def seen(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return a bound record whose row was read or written here, as this transaction sees
        it."""
        if key in self._writes:
            put, revision = self._writes[key], 0
            if put is None:
                return None
            value, expires = put.value, put.expires
        else:
            row = self._rows[key]
            if row is None and key not in self._adds:
                return None
            value, expires, revision = (
                (b"0", None, 0) if row is None else (row.value, row.expires, row.revision)
            )
            if key in self._adds:
                value = sum_of(key, None if row is None else value, self._adds[key])
        decoded, stored = bound.decode(value, key), value if bound.keeps_unknown else None
        return Entry(decoded, key, keys, revision, expires, bound.template.fields, stored)


def key_values(bound: Record[Any], key: str, fields: dict[str, Any]) -> Keys:
    """Return the values of a key's fields, as a read of the key gives them."""
    return bound.template.as_read(key, tuple([fields[name] for name in bound.template.fields]))
