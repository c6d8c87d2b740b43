"""Records in the rows of a transaction: bound records by key, as the transaction sees them.

It knows two things of a record that its row does not tell: a record may be at its legacy key
(`Record.legacy_at`), and it may have expired by its own field though its row is still there.
"""

from typing import Any, TypeVar

from keyhouse.engine import check_key
from keyhouse.errors import UnreadableError
from keyhouse.schema import Keys, Record
from keyhouse.store.entry import Entry
from keyhouse.store.row_buffer import RowBuffer

T = TypeVar("T")


class RecordView:
    """Bound records in a RowBuffer."""

    __slots__ = ("_now", "_rows", "live_until")

    def __init__(self, rows: RowBuffer, now: int) -> None:
        self._rows = rows
        self._now = now
        self.live_until: int | None = None
        """The time at which the first of the records read here expires by its own field, whatever
        its row says; None if none of them does."""

    async def stored_key(self, bound: Record[Any], key: str) -> str:
        """Return the key at which a bound record is: its legacy key while there is no row at its
        current one."""
        if bound.legacy is None:
            return key
        legacy = bound.legacy_key(key)
        rows, stored = self._rows, self._rows.stored
        is_first_read = key not in stored and legacy not in stored
        await rows.read((legacy, key))
        if is_first_read and stored[key] is None and stored[legacy] is None:
            del stored[key]  # the rows of one read are not of one moment: it may have moved
            await rows.read((key,))
        return legacy if rows.seen(key) is None and rows.seen(legacy) is not None else key

    async def entry(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return a bound record by its key, or None."""
        return self.live(bound, await self.stored(bound, key, keys))

    async def stored(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return the record in the row, even if it has expired by its own field."""
        if bound.legacy is not None:
            key = await self.stored_key(bound, key)
        rows = self._rows
        if key not in rows.stored and key not in rows.writes:
            await rows.read((key,))
        return self.seen(bound, key, keys)

    def live(self, bound: Record[T], entry: Entry[T] | None) -> Entry[T] | None:
        """Return the entry of a record that has not expired by its own field."""
        if entry is None or not bound.expires_by_field:
            return entry
        expires = bound.field_expiry(entry.record, entry.key)
        if expires is None:
            return entry
        if expires <= self._now:
            return None
        if self.live_until is None or expires < self.live_until:
            self.live_until = expires
        return entry

    def replaced(self, bound: Record[T], stored: Entry[T] | None) -> Entry[T] | None:
        """Return the record that a write replaces. One whose expiry is not a time can be replaced
        and deleted."""
        try:
            return self.live(bound, stored)
        except UnreadableError:
            return stored

    def seen(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return a bound record whose row was read or written here, as this transaction sees
        it."""
        if (written := self._rows.seen(key)) is None:
            return None
        value, expires = written
        revision = 0 if key in self._rows.writes else self._rows.revision_read(key)
        decoded, stored = bound.decode(value, key), value if bound.keeps_unknown else None
        return Entry(decoded, key, keys, revision, expires, bound.template.fields, stored)

    async def leave_one_key(self, bound: Record[Any], key: str, *, writes_legacy_keys: bool) -> str:
        """Return the key at which to write a record that has legacy keys, and delete the row at the
        other one.

        That is the current key; the legacy one, if the store writes those and the record is not at
        its current key.
        """
        legacy = bound.legacy_key(key)
        if writes_legacy_keys and await self._rows.row(key) is None:
            check_key(legacy)
            return legacy
        if await self._rows.row(legacy) is not None:
            self._rows.writes[legacy] = None
        return key


def key_values(bound: Record[Any], key: str, fields: dict[str, Any]) -> Keys:
    """Return the values of a key's fields, as a read of the key gives them."""
    return bound.template.as_read(key, tuple([fields[name] for name in bound.template.fields]))
