"""Records in the rows of a transaction: bound records by key, as the transaction sees them.

It knows what a row does not tell: a record may be at another key (`stored_keys`), it may have
expired by its own field though its row is still there, and a counter may expire.
"""

from typing import Any, TypeVar

import msgspec

from keyhouse.engine import Put, sum_of
from keyhouse.errors import UnreadableError
from keyhouse.schema import BoundRecord, KeyValues
from keyhouse.store.entry import Entry, entry_of
from keyhouse.store.stored_keys import stored_key
from keyhouse.store.writes.row_buffer import RowBuffer

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

    async def stored_key(self, bound: BoundRecord[Any], key: str) -> str:
        """Return the key at which a bound record is."""
        return await stored_key(self.rows, bound, key)

    async def entry(self, bound: BoundRecord[T], key: str, values: KeyValues) -> Entry[T] | None:
        """Return a bound record by its key, or None."""
        if bound.moves:
            key = await stored_key(self.rows, bound, key)
        elif key not in self.rows.stored and key not in self.rows.writes:
            await self.rows.read((key,))
        return self.live(bound, self.seen(bound, key, values))

    async def stored(self, bound: BoundRecord[T], key: str, values: KeyValues) -> Entry[T] | None:
        """Return the record in the row, even if it has expired by its own field."""
        key = await stored_key(self.rows, bound, key)
        return self.seen(bound, key, values)

    def live(self, bound: BoundRecord[T], entry: Entry[T] | None) -> Entry[T] | None:
        """Return the entry of a record that has not expired by its own field."""
        if entry is None or not bound.expires_by_field:
            return entry
        expires = bound.json.field_expiry(entry.record, entry.key)
        if expires is None:
            return entry
        if expires <= self.now:
            return None
        if self.live_until is None or expires < self.live_until:
            self.live_until = expires
        return entry

    def replaced(self, bound: BoundRecord[T], stored: Entry[T] | None) -> Entry[T] | None:
        """Return the record that a write replaces. One whose expiry is not a time can be replaced
        and deleted."""
        try:
            return self.live(bound, stored)
        except UnreadableError:
            return stored

    def seen(self, bound: BoundRecord[T], key: str, values: KeyValues) -> Entry[T] | None:
        """Return a bound record whose row was read or written here, as this transaction sees
        it."""
        row = self.rows.seen(key)
        return None if row is None else entry_of(bound, row, values)

    async def add_expiring(self, bound: BoundRecord[Any], key: str, by: int) -> None:
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


def key_values(bound: BoundRecord[Any], key: str, fields: dict[str, Any]) -> KeyValues:
    """Return the values of a key's fields, as a read of the key gives them."""
    return bound.template.normalize(key, tuple([fields[name] for name in bound.template.fields]))
