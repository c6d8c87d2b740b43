"""Iterate over whole spaces with constant memory, in one engine or in two side by side.

Each page is a separate snapshot: if the space is written meanwhile, rows of different pages are
of different moments.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from keyhouse.engine import Engine, Page, ReadView, Row, Span

PAGE_ROWS: Final = 2_000
PAGE_ROWS_FIRST: Final = 16
PAGE_BYTES: Final = 4 * 1_024 * 1_024
"""Target size of a page: with large values, pages have fewer rows."""

_WHOLE: Final = Span()

T = TypeVar("T")


async def pages(view: ReadView, space: str, span: Span = _WHOLE) -> AsyncIterator[Page]:
    """Yield the live rows of the span in key order, a page at a time."""
    limit = PAGE_ROWS_FIRST
    while True:
        page = await view.scan(space, span, limit=limit)
        yield page
        if not page.more:
            return
        span = span.after(page.rows[-1].key)
        limit = _next_limit(page.rows, limit)
        await asyncio.sleep(0)  # let other tasks run, even if the engine never waits


async def rows(view: ReadView, space: str, span: Span = _WHOLE) -> AsyncIterator[Row]:
    """Yield the live rows of the span in key order."""
    async for page in pages(view, space, span):
        for row in page.rows:
            yield row


def _next_limit(page: Sequence[Row], limit: int) -> int:
    """Return the number of rows of this size that fit in a page, at most four times the last."""
    size = sum([len(row.value) for row in page])
    return max(1, min(4 * limit, PAGE_ROWS, PAGE_BYTES * len(page) // max(size, 1)))


async def row_pairs(
    source: ReadView, target: Engine, space: str
) -> AsyncIterator[tuple[Row | None, Row | None]]:
    """Yield the row of each key in both engines, in key order; None where one has no row."""
    async for _, first, second in _pairs(
        _by_key(rows(source, space)), _by_key(rows(target, space))
    ):
        yield first, second


async def spaces_of_both(source: ReadView, target: Engine) -> AsyncIterator[str]:
    """Yield each space of either engine, in order."""
    async for space, _, _ in _pairs(_by_name(source.spaces()), _by_name(target.spaces())):
        yield space


async def _by_key(rows: AsyncIterator[Row]) -> AsyncIterator[tuple[str, Row]]:
    async for row in rows:
        yield row.key, row


async def _by_name(names: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    async for name in names:
        yield name, name


async def _pairs(
    left: AsyncIterator[tuple[str, T]], right: AsyncIterator[tuple[str, T]]
) -> AsyncIterator[tuple[str, T | None, T | None]]:
    """Merge two sorted iterators; items of the same name are yielded together."""
    first, second = await anext(left, None), await anext(right, None)
    while first is not None or second is not None:
        if second is None or (first is not None and first[0] < second[0]):
            assert first is not None
            yield *first, None
            first = await anext(left, None)
        elif first is None or second[0] < first[0]:
            yield second[0], None, second[1]
            second = await anext(right, None)
        else:
            yield *first, second[1]
            first, second = await anext(left, None), await anext(right, None)
