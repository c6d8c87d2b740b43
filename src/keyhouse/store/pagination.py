"""Whole spaces, row by row and page by page, with flat memory; and two engines side by side.

A page is of its own moment, so a walk over a space that is being written shows each row as it was at some moment of it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from keyhouse.engine import Engine, Page, ReadView, Row, Span

PAGE_ROWS: Final = 2_000
PAGE_ROWS_FIRST: Final = 16
PAGE_BYTES: Final = 4 * 1_024 * 1_024
"""About what one page holds: where values are large, pages have fewer rows."""

T = TypeVar("T")


async def pages(view: ReadView, space: str, span: Span = Span()) -> AsyncIterator[Page]:  # noqa: B008  # it is frozen
    """The live rows of the span, in key order, a page at a time."""
    limit = PAGE_ROWS_FIRST
    while True:
        page = await view.scan(space, span, limit=limit)
        yield page
        if not page.more:
            return
        span = span.after(page.rows[-1].key)
        limit = _fitting(page.rows, limit)
        await asyncio.sleep(0)  # an engine that answers at once would keep all others waiting


async def rows(view: ReadView, space: str, span: Span = Span()) -> AsyncIterator[Row]:  # noqa: B008  # it is frozen
    """The live rows of the span, in key order."""
    async for page in pages(view, space, span):
        for row in page.rows:
            yield row


def _fitting(page: Sequence[Row], limit: int) -> int:
    """How many rows like these, but no more than four times as many as now, fit in a page."""
    size = sum([len(row.value) for row in page])
    return max(1, min(4 * limit, PAGE_ROWS, PAGE_BYTES * len(page) // max(size, 1)))


async def row_pairs(
    source: ReadView, target: Engine, space: str
) -> AsyncIterator[tuple[Row | None, Row | None]]:
    """Each key that either of the two has a row of, in order, with both rows."""
    async for _, first, second in _pairs(
        _by_key(rows(source, space)), _by_key(rows(target, space))
    ):
        yield first, second


async def spaces_of_both(source: ReadView, target: Engine) -> AsyncIterator[str]:
    """Each space of either of the two, in order."""
    async for space, _, _ in _pairs(_by_name(source.spaces()), _by_name(target.spaces())):
        yield space


async def _by_key(found: AsyncIterator[Row]) -> AsyncIterator[tuple[str, Row]]:
    async for row in found:
        yield row.key, row


async def _by_name(found: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    async for name in found:
        yield name, name


async def _pairs(
    left: AsyncIterator[tuple[str, T]], right: AsyncIterator[tuple[str, T]]
) -> AsyncIterator[tuple[str, T | None, T | None]]:
    """What both name, each in order: what has the same name comes together."""
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
