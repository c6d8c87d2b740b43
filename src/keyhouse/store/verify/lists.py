"""The part of `verify` that completes lists which were full once and have room again.

A full list takes no more members and is marked as truncated. When members leave, it is not known
which records it lacks, so the mark stays until all records are read, here:

1. Read the lists, then all their records.
2. If fewer records belong to a list than it may have members, add those that it lacks, each
   together with a check of its record. Start again.
3. If it lacks none, remove the mark, provided that the list is still at the revision of step 1. A
   record that was created meanwhile would have changed it, since a list with room takes every new
   member. The value proves nothing: a list that was filled up and emptied again has the same one,
   and lacks the records that came between.

The members of all records of a list are in memory meanwhile, so one pass works on a bounded number
of lists. Lists that newer code wrote are left as they are.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

from keyhouse.engine import FOREIGN_REVISION, Row, Span
from keyhouse.errors import DataError, KeyFieldError
from keyhouse.schema import BoundSummary, KeyMatch, KeyValues
from keyhouse.store.store import Store
from keyhouse.store.verify.finding import Finding, confirmed
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import SharedRowChange

T = TypeVar("T")

_ROUNDS_MAX: Final = 3
_COMMIT_RECORDS: Final = 50
"""Records that one commit checks: it must fit into a DynamoDB transaction."""
PASS_MEMBERS: Final = 50_000
"""Members that the lists of one pass may have together, about 20 MB of memory; one list may have
more."""
_PROGRESS_ROWS: Final = 500

Owners = dict[str, tuple[str, KeyValues]]
"""Members of a list, each with the key of one of its records and that key's values."""
OnRows = Callable[[int], None]
"""Called with a number of further rows that were read."""


class TruncatedLists:
    """Truncated lists that have room again, as many as one pass may work on. The others start at
    the key `rest`."""

    def __init__(self) -> None:
        self.lists: dict[str, KeyMatch] = {}
        self.rest: str | None = None
        self._members = 0

    def add(self, match: KeyMatch, row: Row) -> None:
        """Add a derived row if it is such a list."""
        summary = match.declared
        if self.rest is not None or not _has_room(summary, row.value):
            return
        assert isinstance(summary, BoundSummary) and summary.members_max is not None
        if self._members >= PASS_MEMBERS:
            self.rest = row.key
            return
        self.lists[row.key] = match
        self._members += summary.members_max


def _has_room(derived: object, value: bytes, count: int = 0) -> bool:
    try:
        return isinstance(derived, BoundSummary) and derived.has_room(value, count)
    except DataError:
        return False  # unreadable, which is a separate finding


async def refill_lists(
    store: Store, lists: TruncatedLists, on_rows: OnRows
) -> AsyncIterator[Finding]:
    """Complete truncated lists; yield a finding for each that is complete."""
    while lists.lists:
        async for finding in _refill(store, lists.lists, on_rows):
            yield finding
        if lists.rest is None:
            return
        lists = await _lists_from(store, lists.rest, on_rows)


async def _lists_from(store: Store, key: str, on_rows: OnRows) -> TruncatedLists:
    lists = TruncatedLists()
    async with aclosing(_counted(store.row_scan(Span(key)), on_rows)) as rows:
        async for row in rows:
            if (match := store.find(row.key)) is not None:
                lists.add(match, row)
            if lists.rest is not None:
                break
    return lists


async def _counted(items: AsyncGenerator[T, None], on_rows: OnRows) -> AsyncGenerator[T, None]:
    read = 0
    try:
        async with aclosing(items):
            async for item in items:
                read += 1
                if read % _PROGRESS_ROWS == 0:
                    on_rows(_PROGRESS_ROWS)
                yield item
    finally:
        on_rows(read % _PROGRESS_ROWS)


async def _refill(
    store: Store, lists: Mapping[str, KeyMatch], on_rows: OnRows
) -> AsyncIterator[Finding]:
    left = dict(lists)
    for _ in range(_ROUNDS_MAX):
        rows = {key: await store.row(key) for key in left}
        owners = await _owners(store, left, on_rows)
        for key, match in list(left.items()):
            row, listed = rows[key], owners[key]
            if row is None or not _has_room(match.declared, row.value, len(listed)):
                del left[key]
                continue
            members = _summary(match).members(row.value)
            missing = [owner for member, owner in listed.items() if member not in members]
            for at in range(0, len(missing), _COMMIT_RECORDS):
                some = missing[at : at + _COMMIT_RECORDS]
                await confirmed(store, _add, match, key, some)
            if not missing:
                finding = await confirmed(store, _remove_mark, match, row, len(listed))
                if finding is not None:
                    del left[key]
                    yield finding
        if not left:
            return


def _summary(match: KeyMatch) -> BoundSummary:
    assert isinstance(match.declared, BoundSummary)
    return match.declared


async def _owners(
    store: Store, lists: Mapping[str, KeyMatch], on_rows: OnRows
) -> dict[str, Owners]:
    """Read all records of these lists, and return those that belong to each list, one for each
    member; no more than tell that there are too many."""
    owners: dict[str, Owners] = {key: {} for key in lists}
    summaries = {_summary(match): match.record for match in lists.values()}
    for record in dict.fromkeys(summaries.values()):
        scan = store.record_rows(store.schema.record(record.name))
        async for values, row in _counted(scan, on_rows):
            for each in (summary for summary in summaries if summaries[summary] is record):
                rows = _rows(each, KeyMatch(record, record, values), row.key, row.value)
                for key, (member, _) in rows.items():
                    if key in owners and len(owners[key]) <= (each.members_max or 0):
                        owners[key].setdefault(member, (row.key, values))
    return owners


def _rows(derived: BoundSummary, match: KeyMatch, key: str, value: bytes) -> dict[str, Any]:
    try:
        return derived.rows(match.record.decode(value, key), match.values)
    except (DataError, KeyFieldError):
        return {}  # unreadable, which is a separate finding


async def _add(
    tx: Transaction, match: KeyMatch, key: str, owners: list[tuple[str, KeyValues]]
) -> None:
    record, derived = match.record, _summary(match)
    for owner, values in owners:
        written = await tx.row(await tx.records.stored_key(record, record.key_of(owner)))
        if written is None:
            continue
        rows = _rows(derived, KeyMatch(record, record, values), owner, written[0])
        if key in rows:
            await tx.merge(
                SharedRowChange(record, derived, key, values, None, rows[key], written[1])
            )


async def _remove_mark(tx: Transaction, match: KeyMatch, seen: Row, count: int) -> Finding | None:
    there = await tx.row(seen.key)
    if there is None or seen.revision == FOREIGN_REVISION:
        return None
    if tx.rows.revision_read(seen.key) != seen.revision:
        return None
    complete = _summary(match).without_mark(seen.key, seen.value)
    tx.write(seen.key, None if complete is None else (complete, there[1]))
    detail = f"was truncated, and lists all its members again: {count:,}"
    return Finding("wrong", seen.key, match.record.name, detail, True)
