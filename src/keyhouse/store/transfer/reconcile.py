"""The step of a move: compare a space in two engines row by row, and write differences to the
target.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

import msgspec

from keyhouse.engine import Engine, Put, ReadView, Row
from keyhouse.store.reads.long_read import rows
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.transfer.bulk_writer import BulkWriter
from keyhouse.store.transfer.digest import Digest

T = TypeVar("T")

REPORT_ROWS: Final = 500
"""Rows between two reports."""

OnRows = Callable[[int, int], None]
"""Called with the number of rows compared and written since the last call."""


class Comparison(msgspec.Struct, frozen=True):
    """The digests of a space in both engines, and the number of rows that differed."""

    source: Digest
    target: Digest
    differing: int


async def reconcile(
    source: ReadView, target: Engine, space: str, on_rows: OnRows, *, write: bool = True
) -> Comparison:
    """Make the target's space equal to the source's, or only compare them, without `write`."""
    in_source, in_target, differing = Digest(), Digest(), 0
    writes = BulkWriter(target, space)
    compared = written = 0
    async for pair in _pairs(rows(source, space), rows(target, space), lambda row: row.key):
        first, second = (_live(row, source, target) for row in pair)
        if first is not None:
            in_source.add(first)
        if second is not None:
            in_target.add(second)
        if not same(first, second):
            differing += 1
            if write:
                written += 1
                await _write(writes, first, second)
        compared += 1
        if compared == REPORT_ROWS:
            on_rows(compared, written)
            compared = written = 0
    await writes.flush()
    on_rows(compared, written)
    return Comparison(in_source, in_target, differing)


def _live(row: Row | None, source: ReadView, target: Engine) -> Row | None:
    """Return the row, or None if it has expired: it may have done so between the two reads."""
    if row is None or row.expires is None:
        return row
    return row if row.expires > max(source.clock.now(), target.clock.now()) else None


def same(first: Row | None, second: Row | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.value == second.value and first.expires == second.expires


async def _write(writes: BulkWriter, first: Row | None, second: Row | None) -> None:
    if first is not None:
        await writes.put(Put(first.key, first.value, first.expires))
    elif second is not None:
        await writes.delete(second.key)


async def spaces_of_both(source: ReadView, target: Engine) -> AsyncIterator[str]:
    """Yield each space of either engine, in order."""
    async for first, second in _pairs(stored_spaces(source), stored_spaces(target), str):
        yield first or second or ""


async def _pairs(
    left: AsyncIterator[T], right: AsyncIterator[T], name: Callable[[T], str]
) -> AsyncIterator[tuple[T | None, T | None]]:
    """Merge two sorted iterators; items of the same name are yielded together."""
    first, second = await anext(left, None), await anext(right, None)
    while first is not None or second is not None:
        if second is None or (first is not None and name(first) < name(second)):
            yield first, None
            first = await anext(left, None)
        elif first is None or name(second) < name(first):
            yield None, second
            second = await anext(right, None)
        else:
            yield first, second
            first, second = await anext(left, None), await anext(right, None)
