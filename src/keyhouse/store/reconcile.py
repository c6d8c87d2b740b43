"""The one step of a move: walk a space in two engines side by side, and write into the target what differs."""

from collections.abc import Callable
from typing import Final

import msgspec

from keyhouse.engine import Engine, Put, ReadView, Row
from keyhouse.store.bulk_writer import BulkWriter
from keyhouse.store.digest import Digest
from keyhouse.store.pagination import row_pairs

REPORT_ROWS: Final = 500
"""Rows between two reports."""

Seen = Callable[[int, int], None]
"""Told how many more rows were looked at, and how many of them written."""


class Compared(msgspec.Struct, frozen=True):
    """How a space was found in both, and how many rows differed."""

    source: Digest
    target: Digest
    differing: int


async def reconcile(
    source: ReadView, target: Engine, space: str, seen: Seen, *, write: bool = True
) -> Compared:
    """Without `write`, only look."""
    wanted, there, differing = Digest(), Digest(), 0
    writes = BulkWriter(target, space)
    looked = written = 0
    async for pair in row_pairs(source, target, space):
        first, second = (_live(row, source, target) for row in pair)
        if first is not None:
            wanted.add(first)
        if second is not None:
            there.add(second)
        if not _same(first, second):
            differing += 1
            if write:
                written += 1
                await _write(writes, first, second)
        looked += 1
        if looked == REPORT_ROWS:
            seen(looked, written)
            looked = written = 0
    await writes.flush()
    seen(looked, written)
    return Compared(wanted, there, differing)


def _live(row: Row | None, source: ReadView, target: Engine) -> Row | None:
    """A row may expire between the reading of the one engine and of the other: then it is in neither."""
    if row is None or row.expires is None:
        return row
    return row if row.expires > max(source.clock.now(), target.clock.now()) else None


def _same(first: Row | None, second: Row | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.value == second.value and first.expires == second.expires


async def _write(writes: BulkWriter, wanted: Row | None, there: Row | None) -> None:
    if wanted is not None:
        await writes.put(Put(wanted.key, wanted.value, wanted.expires))
    elif there is not None:
        await writes.delete(there.key)
