"""Records in the rows of a transaction: bound records by key, as the transaction sees them.

It knows what a row does not tell: a record may be at its legacy key (`Record.legacy_at`), it may
have expired by its own field though its row is still there, and a counter may expire.
"""

from typing import Any, TypeVar

import msgspec

from keyhouse.engine import Put, check_key, sum_of
from keyhouse.errors import UnreadableError
from keyhouse.schema import Keys, Record
from keyhouse.store.entry import Entry
from keyhouse.store.row_buffer import RowBuffer

T = TypeVar("T")


_EXPIRY_MARGIN_MS = 60_000
"""Time before the expiry of a counter in which it is not added to without a check. No commit is in
flight for so long."""


class RecordView(msgspec.Struct, eq=False):
    """Bound records in the rows of a transaction, whose time is `now`.

    `live_until` is the time at which the first of the records read here expires by its own field,
    whatever its row says; None if none of them does.
    """

    rows: RowBuffer
    now: int
    live_until: int | None = None

    async def stored_key(self, bound: Record[Any], key: str) -> str:
        """Return the key at which a bound record is: its legacy key while there is no row at its
        current one."""
        if bound.legacy is None:
            return key
        legacy = bound.legacy_key(key)
        rows, stored = self.rows, self.rows.stored
        is_first_read = key not in stored and legacy not in stored
        await rows.read((legacy, key))
        if is_first_read and stored[key] is None and stored[legacy] is None:
            del stored[key]  # the rows of one read are not of one moment: it may have moved
            await rows.read((key,))
        return legacy if rows.seen(key) is None and rows.seen(legacy) is not None else key

    async def entry(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return a bound record by its key, or None."""
        if bound.legacy is not None:
            key = await self.stored_key(bound, key)
        elif key not in self.rows.stored and key not in self.rows.writes:
            await self.rows.read((key,))
        return self.live(bound, self.seen(bound, key, keys))

    async def stored(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        """Return the record in the row, even if it has expired by its own field."""
        key = await self.stored_key(bound, key)
        await self.rows.row(key)
        return self.seen(bound, key, keys)

    def live(self, bound: Record[T], entry: Entry[T] | None) -> Entry[T] | None:
        """Return the entry of a record that has not expired by its own field."""
        if entry is None or not bound.expires_by_field:
            return entry
        expires = bound.field_expiry(entry.record, entry.key)
        if expires is None:
            return entry
        if expires <= self.now:
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
        if (row := self.rows.seen(key)) is None:
            return None
        value = row.value
        decoded, stored = bound.decode(value, key), value if bound.keeps_unknown else None
        return Entry(decoded, key, keys, row.revision, row.expires, bound.template.fields, stored)

    async def leave_one_key(self, bound: Record[Any], key: str, writes_legacy_keys: bool) -> str:
        """Return the key at which to write a record that has legacy keys, and delete the row at the
        other one.

        That is the current key; the legacy one, if the store writes those and the record is not at
        its current key.
        """
        legacy = bound.legacy_key(key)
        if writes_legacy_keys and await self.rows.row(key) is None:
            check_key(legacy)
            return legacy
        if await self.rows.row(legacy) is not None:
            self.rows.writes[legacy] = None
        return key

    async def add_expiring(self, bound: Record[Any], key: str, by: int) -> None:
        """Add to a counter that expires.

        Its first add puts the row, with its expiry; later ones add without a check, so that they do
        not conflict. But an add to a row that expires before the commit would create one that
        stays: in the last minute, adds are puts too.
        """
        rows = self.rows
        if key in rows.stored:
            row = rows.stored[key]
        else:
            [row] = await rows.engine.read(rows.space, (key,))
        expires = None if row is None else row.expires
        if expires is not None and expires - self.now > _EXPIRY_MARGIN_MS:
            rows.add(key, by)
            return
        rows.stored.setdefault(key, row)
        value = sum_of(key, None if row is None else row.value, by)
        rows.writes[key] = Put(key, value, bound.expires(by, expires, None, self.now))


def key_values(bound: Record[Any], key: str, fields: dict[str, Any]) -> Keys:
    """Return the values of a key's fields, as a read of the key gives them."""
    return bound.template.as_read(key, tuple([fields[name] for name in bound.template.fields]))
