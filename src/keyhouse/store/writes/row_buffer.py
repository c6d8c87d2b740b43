"""Row buffers: the rows of one space that a transaction has read and will write, and the Batch they
become.

A buffer knows keys and rows, and nothing of records. It has four maps by key:

    stored     each row that was read, as it was (None: absent)     -> Checks
    assumed    checks of rows that were not read: see `assumptions` -> Checks
    writes     each row to put, or None to delete                   -> Puts and deletes
    adds       what to add to each counter, without reading it      -> Adds
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, check_limits, sum_of

Written = tuple[bytes, int | None]
"""Value and expiry of a row to write."""

Buffered = tuple[dict[str, Put | None], dict[str, int]]
"""A copy of `writes` and `adds`."""


class RowChange(NamedTuple):
    """One row of a commit: its stored value and its new one; None where the row is absent."""

    key: str
    before: bytes | None
    after: bytes | None


class RowBuffer(msgspec.Struct, eq=False):
    """Rows read, rows to write and counters to add to. (A Struct is made at half the cost.)

    `may_assume`: another attempt follows if the commit loses a race, so that rows may be assumed.
    `assumed` is None while nothing is; an assumption replaces it.
    """

    engine: Engine
    space: str
    may_assume: bool = False
    stored: dict[str, Row | None] = {}
    assumed: Mapping[str, Check] | None = None
    writes: dict[str, Put | None] = {}
    adds: dict[str, int] = {}

    @property
    def pending(self) -> int:
        """Number of rows that a commit would write now."""
        return len(self.writes) + len(self.adds)

    # Reading

    async def read(self, keys: Sequence[str]) -> None:
        """Read those of these rows that were not read yet, by one call of the engine."""
        stored = self.stored
        if stored:
            keys = [key for key in keys if key not in stored]
        if keys:
            rows = await self.engine.read(self.space, keys)
            for key, row in zip(keys, rows):  # noqa: B905  # the engine answers for each key
                stored.setdefault(key, row)  # of two concurrent reads, the first must hold

    async def row(self, key: str) -> Row | None:
        """Return a row as the transaction sees it, or None; at revision 0, if it is written or
        added to here."""
        if key not in self.stored and key not in self.writes:
            await self.read((key,))
        return self.seen(key)

    def seen(self, key: str) -> Row | None:
        """Return a row that was read or written here, as `row` does."""
        if key in self.writes:
            put = self.writes[key]
            return None if put is None else Row(key, put.value, 0, put.expires)
        row = self.stored[key]
        if key not in self.adds:
            return row
        value, revision, expires = (
            (None, 0, None) if row is None else (row.value, row.revision, row.expires)
        )
        return Row(key, sum_of(key, value, self.adds[key]), revision, expires)

    def revision_read(self, key: str) -> int:
        """Return the revision at which a stored row was read here; 0 if it was not read, or was
        absent."""
        return revision_of(self.stored.get(key)) or 0

    async def is_unchanged(self) -> bool:
        """Return whether all that was read here is still as it was: then it was so at one
        moment."""
        keys = list(self.stored)
        now = await self.engine.read(self.space, keys)
        return all(
            revision_of(self.stored[key]) == revision_of(row)
            for key, row in zip(keys, now, strict=True)
        )

    # Writing

    def write(self, key: str, written: Written | None) -> None:
        """Put or delete one row as it is."""
        self.writes[key] = None if written is None else Put(key, *written)

    def add(self, key: str, by: int) -> None:
        """Add to a counter."""
        if key in self.writes:
            put = self.writes[key]
            value, expires = (None, None) if put is None else (put.value, put.expires)
            self.writes[key] = Put(key, sum_of(key, value, by), expires)
        else:
            # A RecordCount that comes to 0 is kept: `verify` tells by it that there were records.
            self.adds[key] = self.adds.get(key, 0) + by

    def copied(self) -> Buffered | None:
        """Return a copy of what is to be written, for `restore`; None if that is nothing."""
        if not self.writes and not self.adds:
            return None
        return self.writes.copy(), self.adds.copy()

    def restore(self, copied: Buffered | None) -> None:
        """Write what was to be written when the copy was made; what was read since stays."""
        self.writes, self.adds = ({}, {}) if copied is None else copied

    # Committing

    def commit(self, batch_id: str | None = None) -> Awaitable[int | None]:
        """Commit and return the revision; None when a row is not as it was read or assumed."""
        if self.assumed and self._is_contradicted(self.assumed):
            return _lost()
        return self.engine.commit(self.space, self.batch(batch_id))

    def _is_contradicted(self, assumed: Mapping[str, Check]) -> bool:
        """Return whether a row was read at another revision than it was assumed to be at."""
        stored = self.stored
        return not stored.keys().isdisjoint(assumed) and any(
            key in stored and revision_of(stored[key]) != check.revision
            for key, check in assumed.items()
        )

    def batch(self, batch_id: str | None = None) -> Batch:
        """Return what a commit would send. Raises LimitError if it exceeds the engine's limits."""
        stored, writes = self.stored, self.writes
        checks: tuple[Check, ...] = ()
        if stored:
            checks = tuple(
                [Check(key, None if row is None else row.revision) for key, row in stored.items()]
            )
        if self.assumed:
            checks += tuple([check for key, check in self.assumed.items() if key not in stored])
        puts: tuple[Any, ...] = tuple(writes.values())
        deletes: tuple[str, ...] = ()
        if not all(puts):
            puts = tuple([put for put in puts if put is not None])
            deletes = tuple(  # without the rows that are known to be absent
                [
                    key
                    for key, put in writes.items()
                    if put is None and stored.get(key, 0) is not None
                ]
            )
        adds = tuple([Add(key, by) for key, by in self.adds.items()]) if self.adds else ()
        batch = Batch(checks, puts, deletes, adds, batch_id)
        check_limits(batch, self.engine.capabilities)
        return batch

    async def changes(self) -> list[RowChange]:
        """Return the rows that a commit would write now, each with its stored value and its new
        one.

        Rows that were written without a read are read here, and checked by the commit. Rows that
        are only added to are read without a check, so that adds still never conflict.
        """
        await self.read(list(self.writes))
        changes = [
            RowChange(key, _value(self.stored[key]), None if put is None else put.value)
            for key, put in self.writes.items()
        ]
        if self.adds:
            stored = await self.engine.read(self.space, list(self.adds))
            for (key, by), row in zip(self.adds.items(), stored, strict=True):
                changes.append(RowChange(key, _value(row), sum_of(key, _value(row), by)))
        return changes


async def _lost() -> None:
    """Return the outcome of a lost race."""


def revision_of(row: Row | None) -> int | None:
    return None if row is None else row.revision


def _value(row: Row | None) -> bytes | None:
    return None if row is None else row.value
