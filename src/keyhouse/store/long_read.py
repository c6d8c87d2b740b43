"""Long reads: pages of bounded size, read in turns with the long reads of other spaces.

Theory of operation. Reads of an engine in this process never wait, so a scan of a whole space would
keep every other task waiting, and one page of large values would take hundreds of megabytes. Every
read that may go through a whole space therefore goes page by page:

- *Size.* A page starts with few rows; the next has as many as fit in `PAGE_BYTES` at the size of
  the rows so far, at most four times as many. If the rows are suddenly larger, the page is cut and
  the rest is read again. So a reader that waits for its consumer holds `PAGE_BYTES` and one row.
- *Turns.* Before each page but the first, a read waits for its turn: one page per turn of the event
  loop, round robin over the spaces. A short request waits for one page at most, however many long
  reads are under way, and a space with many of them gets no more than a space with one.
- *Watches.* A watch that resumes at an old revision takes turns in the same way, after every
  `WATCH_ROWS` changes or `PAGE_BYTES`.
- *Cost.* Each page is reported to the `read_meter` of the request.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from keyhouse.read_meter import read_meter

PAGE_ROWS_FIRST: Final = 16
PAGE_ROWS: Final = 256
PAGE_BYTES: Final = 256 * 1_024
WATCH_ROWS: Final = 64
"""Changes are decoded one by one, and cost more than the rows of a page."""

_GROWTH: Final = 4

Keep = Callable[[Sequence[int]], int]
"""Takes the sizes of the rows that were read, and returns how many of them belong to the page: see
`LongRead.keep`."""


class LongRead:
    """The page sizes and turns of one long read of a space.

    Per page: `await turn()`, read up to `rows` rows, and keep as many as `keep` returns. `kept` and
    `kept_bytes` are the rows and bytes of the page that was kept last.
    """

    __slots__ = (
        "_meter",
        "_page_bytes",
        "_rows_max",
        "_space",
        "_started",
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
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self.rows = rows
        self.kept = self.kept_bytes = 0
        self._rows_max = rows_max
        self._page_bytes = page_bytes
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
        if size > self._page_bytes:
            count = fitting_rows(sizes, self._page_bytes)
            size = sum(sizes[:count])
        if self._meter is not None:
            self._meter(count, size)
        fitting = self._page_bytes * count // max(size, 1)
        self.rows = max(1, min(fitting, _GROWTH * self.rows, self._rows_max))
        self.kept, self.kept_bytes = count, size
        return count


def fitting_rows(sizes: Sequence[int], bytes_max: int) -> int:
    """Return how many rows of these sizes fit in `bytes_max`: the first always does."""
    left = bytes_max
    for at, size in enumerate(sizes):
        left -= size
        if left < 0:
            return max(at, 1)
    return len(sizes)


class LongWatch:
    """The turns of one watch. Per change, if `is_due` returns true: `await turn()`."""

    __slots__ = ("_rows", "_size", "_space")

    def __init__(self, space: str) -> None:
        self._space = space
        self._rows = self._size = 0

    def is_due(self, size: int) -> bool:
        """Count a change with a value of `size` bytes; return whether others must have a turn."""
        self._rows += 1
        self._size += size
        return self._rows > WATCH_ROWS or self._size > PAGE_BYTES

    async def turn(self) -> None:
        self._rows = self._size = 0
        await wait_for_turn(self._space)


async def wait_for_turn(space: str) -> None:
    """Wait for a turn of the event loop, round robin over the spaces."""
    await _turns().wait(space)


class _Turns:
    """Wakes one waiting read per turn of the event loop, round robin over the spaces."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def wait(self, space: str) -> asyncio.Future[None]:
        future = self._loop.create_future()
        if not self._waiting:
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
                break
        if waiting:
            self._loop.call_soon(self._wake)


_turns_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    turns = _turns_by_loop.get(loop)
    if turns is None:
        turns = _turns_by_loop[loop] = _Turns(loop)
    return turns
