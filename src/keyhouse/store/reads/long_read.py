"""Long reads: pages of bounded size, read in turns with the long reads of other spaces.

Theory of operation. Reads of an engine in this process never wait, so a scan of a whole space would
keep every other task waiting, and one page of large values would take hundreds of megabytes. Every
read that may go through a whole space therefore goes page by page:

- *Size.* A page starts with few rows; the next has as many as fit in `PAGE_BYTES` at the size of
  the rows so far, at most four times as many. If the rows are suddenly larger, an engine of this
  process ends the page by its `bytes_max`; that of a server is cut, and the rest is read again. So
  a reader that waits for its consumer holds `PAGE_BYTES` or one row.
- *Turns.* Before each page but the first, a read waits for its turn: one page per turn of the event
  loop, round robin over the spaces, and after a page that took more than a millisecond some turns
  with none. So a short request waits for one page each time that it is resumed by a socket or a
  thread, however many long reads are under way, and a space with many of them gets no more than a
  space with one.
- *Watches.* They take turns in the same way, after every `WATCH_ROWS` changes or `PAGE_BYTES` of
  all watches together: one may resume at an old revision, and a commit goes to all watches of its
  space.
- *Writes.* A transaction of many records takes turns after every millisecond of work.
- *Cost.* Each page is reported to the `read_meter` of the request.
- *One page.* A read of one page, or of several addresses, that asks for many rows takes a turn
  before it, and is reported like a page of a long read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from keyhouse.engine import Engine, Page, Row, Span, fitting_rows
from keyhouse.limits import READ_ROWS_PER_REQUEST
from keyhouse.read_meter import read_meter, report_read

PAGE_ROWS_FIRST: Final = 16
PAGE_ROWS: Final = 256
PAGE_BYTES: Final = 256 * 1_024
WATCH_ROWS: Final = 64
"""Changes are decoded one by one, and cost more than the rows of a page."""

LONG_STEP_SECONDS: Final = 0.001
QUIET_TURNS: Final = 8
"""Turns of the event loop without a page, after one that took long: a request needs three to five
of them, and would wait for a page in each. An idle loop makes them in a few microseconds."""

PAUSED_STEP_SECONDS: Final = 0.002
PAUSE_SHARE: Final = 0.25
"""The pause after a page that took this long, as a share of its time. Decoding a large document
holds the GIL, which the commit thread needs for each of its statements."""

_GROWTH: Final = 4


class LongRead:
    """The page sizes and turns of one long read of a space.

    Per page: `await turn()`, read up to `rows` rows with `bytes_max`, and keep as many as `keep`
    returns. `kept` and `kept_bytes` are the rows and bytes of the page that was kept last.
    """

    __slots__ = (
        "_meter",
        "_rows_max",
        "_space",
        "_started",
        "bytes_max",
        "kept",
        "kept_bytes",
        "rows",
    )

    def __init__(
        self,
        space: str,
        rows_max: int = PAGE_ROWS,
        *,
        rows: int = PAGE_ROWS_FIRST,
        bytes_max: int = PAGE_BYTES,
    ) -> None:
        self.rows = rows
        self.kept = self.kept_bytes = 0
        self._rows_max = rows_max
        self.bytes_max = bytes_max
        self._space = space
        self._started = False
        self._meter = read_meter.get()

    async def turn(self) -> None:
        """Wait until the next page may be read; the first may at once."""
        if self._started:
            await wait_for_turn(self._space)
        self._started = True

    def keep(self, sizes: Sequence[int]) -> int:
        """Return how many of the rows that were read belong to the page: one at least. They count
        for the meter; the others are read again."""
        count, size = len(sizes), sum(sizes)
        if size > self.bytes_max:
            count = fitting_rows(sizes, self.bytes_max)
            size = sum(sizes[:count])
        if self._meter is not None:
            self._meter(count, size)
        fitting = self.bytes_max * count // max(size, 1)
        self.rows = max(1, min(fitting, _GROWTH * self.rows, self._rows_max))
        self.kept, self.kept_bytes = count, size
        return count


async def span_pages(
    engine: Engine,
    space: str,
    span: Span,
    *,
    reverse: bool = False,
    keys_only: bool = False,
    read: LongRead | None = None,
) -> AsyncGenerator[Page, None]:
    """Iterate over all rows of a span, in pages of bounded size. `read` counts the pages of several
    spans as one read."""
    read = read or LongRead(space)
    more = True
    while more:
        await read.turn()
        page = await engine.scan(
            space,
            span,
            limit=read.rows,
            reverse=reverse,
            keys_only=keys_only,
            bytes_max=read.bytes_max,
        )
        count = read.keep([len(row.value) for row in page.rows])
        if count < len(page.rows):
            page = Page(page.rows[:count], True, page.revision)
        yield page
        if more := page.more:
            last = page.rows[-1].key
            span = span.before(last) if reverse else span.after(last)


class LongWatch:
    """The turns of one watch. Per change, if `is_due` returns true: `await turn()`.

    All watches count together: a commit wakes all watches of its space in one turn.
    """

    __slots__ = ("_space", "_turns")

    def __init__(self, space: str) -> None:
        self._space = space
        self._turns = _turns()

    def is_due(self, size: int) -> bool:
        """Count a change with a value of `size` bytes; return whether others must have a turn."""
        turns = self._turns
        turns.watch_rows += 1
        turns.watch_bytes += size
        return turns.watch_rows > WATCH_ROWS or turns.watch_bytes > PAGE_BYTES

    async def turn(self) -> None:
        turns = self._turns
        await turns.wait(self._space)
        turns.watch_rows = turns.watch_bytes = 0


class LongWork:
    """The turns of work in many parts, none of which waits. Before each part: `await turn()`."""

    __slots__ = ("_space", "_started")

    def __init__(self, space: str) -> None:
        self._space = space
        self._started = perf_counter()

    async def turn(self) -> None:
        """Wait for a turn, if the parts since the last one took long."""
        if perf_counter() - self._started > LONG_STEP_SECONDS:
            await wait_for_turn(self._space)
            self._started = perf_counter()


async def before_read(space: str, asked: object) -> None:
    """Wait for a turn, if a read that is not a long one asks for many rows."""
    if isinstance(asked, int) and asked > READ_ROWS_PER_REQUEST:  # the scan rejects others
        await wait_for_turn(space)


def after_read(rows: Sequence[Row | None]) -> None:
    """Report a read that is not a long one, if it has many rows."""
    if len(rows) > READ_ROWS_PER_REQUEST:
        report_read(len(rows), sum(0 if row is None else len(row.value) for row in rows))


async def wait_for_turn(space: str) -> None:
    """Wait for a turn of the event loop, round robin over the spaces."""
    await _turns().wait(space)


class _Turns:
    """Wakes one waiting read per turn of the event loop, round robin over the spaces, and after a
    long step none for some turns and a pause."""

    __slots__ = (
        "_is_active",
        "_loop",
        "_pause_seconds",
        "_quiet",
        "_waiting",
        "_woken_at",
        "watch_bytes",
        "watch_rows",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_active = False  # the next call is scheduled
        self._woken_at = self._pause_seconds = 0.0
        self._quiet = 0
        self.watch_rows = self.watch_bytes = 0  # of all watches, since one of them had its turn

    def wait(self, space: str) -> asyncio.Future[None]:
        future = self._loop.create_future()
        if not self._is_active:
            self._is_active = True
            self._loop.call_soon(self._wake)
        self._waiting.setdefault(space, deque()).append(future)
        return future

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting:
            space = next(iter(waiting))
            queue = waiting.pop(space)
            future = queue.popleft()
            if queue:
                waiting[space] = queue  # behind the other spaces
            if not future.done():  # else its task was cancelled
                future.set_result(None)
                self._woken_at = perf_counter()
                self._loop.call_soon(self._woken)  # in the next turn, after the step of its task
                return
        self._is_active = False

    def _woken(self) -> None:
        seconds = perf_counter() - self._woken_at
        if seconds > LONG_STEP_SECONDS:
            self._quiet = QUIET_TURNS
            self._pause_seconds = PAUSE_SHARE * seconds if seconds > PAUSED_STEP_SECONDS else 0.0
            self._loop.call_soon(self._pass)
        else:
            self._wake()

    def _pass(self) -> None:
        self._quiet -= 1
        if self._quiet:
            self._loop.call_soon(self._pass)
        elif self._pause_seconds:
            self._loop.call_later(self._pause_seconds, self._wake)
        else:
            self._wake()


_turns_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    turns = _turns_by_loop.get(loop)
    if turns is None:
        turns = _turns_by_loop[loop] = _Turns(loop)
    return turns
