"""Long reads: all rows of a span or of a scan, in pages of bounded size.

Theory of operation. A page that holds a whole space would take hundreds of megabytes, and reads of
an engine in this process never wait, so that one scan would hold up every other task. Every read
that may go through a whole space therefore goes page by page:

- A page starts with few rows; the next has as many as fit in `PAGE_BYTES` at the size of the rows
  so far, at most four times as many.
- If the rows are suddenly larger, an engine of this process ends the page by its `bytes_max`; that
  of a server is cut, and the rest is read again. So a reader that waits for its consumer holds
  `PAGE_BYTES` or one row.
- Other tasks run after each `PAGE_ROWS` or `PAGE_BYTES`, even if the engine never waits.

Each page is a separate snapshot: if the space is written meanwhile, rows of different pages are of
different moments.

A read that may be large passes a `bytes_max`, and only such a read does. A service wraps its engine
to count these reads and to let them wait for their turn (`keyhouse.service.served_engine`); a
script that opens its own file pays for neither. A read of one page, or of several addresses, has to
return all that it asks for: if that is many rows, it passes one that is never reached.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol, Self, TypeVar

from keyhouse.engine import Engine, Page, ReadView, Row, Span, fitting_rows

PAGE_ROWS_FIRST: Final = 16
PAGE_ROWS: Final = 256
PAGE_BYTES: Final = 256 * 1_024

FEW_ROWS: Final = 100
"""Rows that a read of one page, or of several addresses, returns without being a large read."""

COPY_ROWS: Final = 2_000
COPY_BYTES: Final = 4 * 1_024 * 1_024
"""Pages of work that reads whole spaces: to copy, to verify, to find dependents."""

_GROWTH: Final = 4
_WHOLE: Final = Span()


class PageLike(Protocol):
    """A page of rows, or of what rows lead to. Its rows are the first ones that are left."""

    @property
    def more(self) -> bool: ...

    def sizes(self) -> list[int]: ...

    def first(self, count: int) -> Self: ...


P = TypeVar("P", bound=PageLike)


class LongRead:
    """The page sizes of one long read.

    Per page: read up to `rows` rows with `bytes_max`, and keep as many as `fit` returns: all of
    them without `cuts`. `kept` and `kept_bytes` are the rows and bytes of the page kept last.
    """

    __slots__ = ("_cuts", "_rows_max", "bytes_max", "kept", "kept_bytes", "rows")

    def __init__(
        self,
        rows_max: int = PAGE_ROWS,
        *,
        rows: int = PAGE_ROWS_FIRST,
        bytes_max: int = PAGE_BYTES,
        cuts: bool = True,
    ) -> None:
        self._cuts = cuts
        self.rows = rows
        self.kept = self.kept_bytes = 0
        self._rows_max = rows_max
        self.bytes_max = bytes_max

    def fit(self, sizes: Sequence[int]) -> int:
        """Return how many of the rows that were read belong to the page: one at least. The others
        are read again."""
        count, size = len(sizes), sum(sizes)
        if self._cuts and size > self.bytes_max:
            count = fitting_rows(sizes, self.bytes_max)
            size = sum(sizes[:count])
        fitting = self.bytes_max * count // max(size, 1)
        self.rows = max(1, min(fitting, _GROWTH * self.rows, self._rows_max))
        self.kept, self.kept_bytes = count, size
        return count


def one_page_bytes(rows: int) -> int | None:
    """Return the `bytes_max` of a read that must return all of so many rows."""
    return None if rows <= FEW_ROWS else sys.maxsize


async def walk(
    read: LongRead, after: Callable[[P | None], Awaitable[P]]
) -> AsyncGenerator[P, None]:
    """Iterate over pages of bounded size. `after` reads the page after another one, or the first
    one, of up to `read.rows` rows."""
    page, share = await after(None), 0.0
    while True:
        page = page.first(read.fit(page.sizes()))
        yield page
        if not page.more:
            return
        share += read.kept / PAGE_ROWS + read.kept_bytes / PAGE_BYTES
        if share < 1:  # of what is read without a pause
            page = await after(page)
        else:
            page, share = await _with_pause(after(page)), 0.0


async def _with_pause(reading: Awaitable[P]) -> P:
    """Let other tasks run, unless the read itself waits: an engine of a service does, in turns."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    page = await reading
    if not turn.is_set():
        await asyncio.sleep(0)
    return page


def paced_pages(
    engine: Engine,
    space: str,
    span: Span,
    *,
    reverse: bool = False,
    keys_only: bool = False,
    read: LongRead | None = None,
) -> AsyncGenerator[Page, None]:
    """Iterate over all rows of a span, for a caller of the store. `read` counts the pages of
    several spans as one read."""
    sizes = read or LongRead()

    def after(page: Page | None) -> Awaitable[Page]:
        return engine.scan(
            space,
            span if page is None else span.rest(page.rows[-1].key, reverse=reverse),
            limit=sizes.rows,
            reverse=reverse,
            keys_only=keys_only,
            bytes_max=sizes.bytes_max,
        )

    return walk(sizes, after)


def pages(view: ReadView, space: str, span: Span = _WHOLE) -> AsyncGenerator[Page, None]:
    """Iterate over all rows of a span, in larger pages: for work of the store itself, which a
    service neither counts nor lets wait."""
    sizes = LongRead(COPY_ROWS, bytes_max=COPY_BYTES, cuts=False)

    def after(page: Page | None) -> Awaitable[Page]:
        rest = span if page is None else span.after(page.rows[-1].key)
        return view.scan(space, rest, limit=sizes.rows)

    return walk(sizes, after)


async def rows(view: ReadView, space: str, span: Span = _WHOLE) -> AsyncGenerator[Row, None]:
    """Iterate over all rows of a span, as `pages` does."""
    async for page in pages(view, space, span):
        for row in page.rows:
            yield row
