"""Rebuild the rows of a RecordCount from the records, while others write.

Theory of operation. Every commit that changes the true number also writes the row of the count. So
a number that was counted by a scan is current if the row still has the revision that it had before
the scan (or is still absent); the commit checks that. One scan counts for all rows. Rows that
changed meanwhile are counted by another scan, a few times.
"""

from collections import Counter as Multiset
from collections.abc import Callable
from typing import Any, Final

from keyhouse.errors import ContentionError, DataError, KeyFieldError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import Record, RecordCount
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

__all__ = ["rebuild_counts"]

Progress = Callable[[int], None]

_SCANS_MAX: Final = 20


async def rebuild_counts(
    store: Store, record: Record[Any], count: RecordCount, on_progress: Progress | None = None
) -> int:
    """Write the true number to every row of a count; return the number of records.

    Raises ContentionError if rows change faster than the records can be read.
    """
    left: set[str] | None = None
    for _ in range(_SCANS_MAX):
        before = await _revisions(store, count)
        counted, records = await _counted(store, record, count, on_progress)
        keys = before.keys() | counted.keys()
        left = {
            key
            for key in (keys if left is None else keys & left)
            if not await _written(store, key, counted[key], before.get(key))
        }
        if not left:
            return records
    raise ContentionError(
        "The rows of a count change faster than its records can be read: build it again later.",
        count=count.template.text,
        rows=len(left or ()),
    )


async def _revisions(store: Store, count: RecordCount) -> dict[str, int]:
    found: dict[str, int] = {}
    cursor: str | None = None
    while True:
        keys, cursor = await store.keys(count, limit=PAGE_ROWS_MAX // 10, cursor=cursor)
        rows = await store.rows(keys)
        found |= {row.key: row.revision for row in rows if row is not None}
        if cursor is None:
            return found


async def _counted(
    store: Store, record: Record[Any], count: RecordCount, on_progress: Progress | None
) -> tuple[Multiset[str], int]:
    """Return the number of records for each row, and of all. Unreadable records count nothing."""
    bound, derived = store.binding.record(record), store.binding.derived(count)
    counted: Multiset[str] = Multiset()
    records = 0
    async for values, row in store.record_rows(record):
        records += 1
        try:
            counted.update(derived.rows(bound.decode(row.value, row.key), values).keys())
        except (DataError, KeyFieldError):
            continue
        if on_progress is not None and records % 1_000 == 0:
            on_progress(records)
    return counted, records


async def _written(store: Store, key: str, number: int, revision: int | None) -> bool:
    """Write a number if the row is as it was at this revision; return whether it is right now."""
    tx = Transaction(store.engine, store.space, store.binding)
    found = await tx.row(key)
    if tx.rows.revision_read(key) != (revision or 0):
        return False
    value = str(number).encode()
    if (b"0" if found is None else found[0]) == value:
        return True
    tx.write(key, (value, None if found is None else found[1]))
    return await tx.commit() is not None
