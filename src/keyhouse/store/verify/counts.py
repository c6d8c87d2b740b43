"""The part of `verify` that compares counts with the number of their records."""

from typing import Any, Final

from keyhouse.counter import number_of
from keyhouse.engine import Row
from keyhouse.errors import CounterError, DataError, KeyFieldError
from keyhouse.schema import KeyMatch, Record
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction
from keyhouse.store.verify.finding import Finding

_RECOUNTS_MAX: Final = 20


async def check_count(store: Store, key: str, expected: int, *, repair: bool) -> Finding | None:
    """Count again while the count row changes, and report it if it is still wrong.

    Every commit that changes the true count also writes this row, so an unchanged revision proves
    that the recount is current.
    """
    found = store.find(key)
    assert found is not None
    row = await store.row(key)
    if _stored_count(row) == expected:
        return None
    for _ in range(_RECOUNTS_MAX):
        true, unreadable = await _recount(store, found, key)
        tx = Transaction(store.engine, store.space, store.binding)
        written = await tx.row(key)
        again = await store.row(key)
        if (row and row.revision) != (again and again.revision):
            row = again
            continue
        count = _stored_count(row)
        if count is not None and true <= count <= true + unreadable:
            return None  # it may be right: unreadable records are separate findings
        if repair:
            tx.write(key, (str(true).encode(), None if written is None else written[1]))
            if await tx.commit() is None:
                row = await store.row(key)
                continue
        return Finding(
            "miscounted", key, found.record.name, f"is {count}, should be {true}", repair
        )
    return Finding(
        "miscounted",
        key,
        found.record.name,
        "changes too often to be counted; run verify again later",
    )


def _stored_count(row: Row | None) -> int | None:
    if row is None:
        return 0
    try:
        return number_of(row.key, row.value)
    except CounterError:
        return None


async def _recount(store: Store, found: KeyMatch, key: str) -> tuple[int, int]:
    """Return the number of records with this row, and the number of unreadable ones."""
    total = unreadable = 0
    record: Record[Any] = found.record
    async for values, row in store.record_rows(store.schema.record(record.name)):
        try:
            total += key in found.declared.rows(record.decode(row.value, row.key), values)
        except (DataError, KeyFieldError):
            unreadable += 1
    return total, unreadable
