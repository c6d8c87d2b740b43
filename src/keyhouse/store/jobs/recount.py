"""Count again the records of rows that count them, while others write.

Theory of operation. Every commit that changes the true number also writes the row of the count. So
a number that was counted by a scan is current if the row still has the revision that it had before
the scan (or is still absent); the commit that settles the row checks that. One scan counts for all
rows. Rows that changed meanwhile are counted by another scan, a few times.
"""

from collections import Counter as Multiset
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from keyhouse.engine import Row
from keyhouse.errors import ContentionError, DataError, KeyFieldError
from keyhouse.schema import Derived, Record
from keyhouse.store.reads.long_read import rows
from keyhouse.store.store import Store
from keyhouse.store.writes.transaction import Transaction

Progress = Callable[[int], None]

_SCANS_MAX: Final = 20


class CountedRow(NamedTuple):
    """The number of records for a row, which was `before` when the scan began.

    `unreadable` records may count too.
    """

    key: str
    before: Row | None
    number: int
    unreadable: int

    async def settle(self, store: Store, *, writes: bool) -> bool:
        """Return whether the row is still as it was, so that the number is current; `writes`
        corrects it then."""
        tx = Transaction(store)
        written = await tx.row(self.key)
        if tx.rows.revision_read(self.key) != (0 if self.before is None else self.before.revision):
            return False
        value = str(self.number).encode()
        if not writes or (b"0" if written is None else written[0]) == value:
            return True
        tx.write(self.key, (value, None if written is None else written[1]))
        return await tx.commit() is not None


async def rebuild_counts(
    store: Store, record: Record[Any], count: Derived, on_progress: Progress | None = None
) -> int:
    """Write the true number to every row of a count; return the number of records.

    Raises ContentionError if rows change faster than the records can be read.
    """

    async def settle(row: CountedRow) -> bool:
        return await row.settle(store, writes=True)

    records, left = await recount(store, record, [count], settle, on_progress=on_progress)
    if left:
        raise ContentionError(
            "The rows of a count change faster than its records can be read: build it again later.",
            count=count.template.text,
            rows=len(left),
        )
    return records


async def recount(
    store: Store,
    record: Record[Any],
    counts: Sequence[Derived],
    settle: Callable[[CountedRow], Awaitable[bool]],
    *,
    keys: set[str] | None = None,
    on_progress: Progress | None = None,
) -> tuple[int, set[str]]:
    """Count records until each row of these counts, or each of these `keys`, is settled.

    Returns the number of records, and the keys of rows that change faster than the records can be
    read.
    """
    bound = store.binding.record(record)
    derived = [store.binding.derived(count) for count in counts]
    left, records = keys, 0
    for _ in range(_SCANS_MAX):
        before = {
            row.key: row
            for count in derived
            async for row in rows(store.engine, store.space, count.template.span({}))
            if count.template.split(row.key) is not None
        }
        numbers: Multiset[str] = Multiset()
        records = unreadable = 0
        async for values, row in store.record_rows(record):
            records += 1
            try:
                value = bound.decode(row.value, row.key)
                numbers.update([key for count in derived for key in count.rows(value, values)])
            except (DataError, KeyFieldError):
                unreadable += 1
            if on_progress is not None and records % 1_000 == 0:
                on_progress(records)
        left = {
            key
            for key in sorted(before.keys() | numbers.keys() if left is None else left)
            if not await settle(CountedRow(key, before.get(key), numbers[key], unreadable))
        }
        if not left:
            break
    return records, left or set()
