"""Long work: pages, watches and large writes of all tenants, in turns of the event loop.

Theory of operation. Reads of an engine in this process never wait, so a scan of a whole space would
hold up every other request. The store reads it in pages of bounded size; here each page waits for
its turn. A turn of the event loop has one page, round robin over the spaces; several, if they are
small and nothing waits. After a turn that took long there are some without a page. So a short
request waits for one page each time that it is resumed by a socket or a thread, however many long
reads are under way, and a space with many of them gets no more than a space with one.

A place of `keyhouse.scheduling.turns` is held for one turn of the event loop; after a long one for
`QUIET_TURNS` more, and a pause.

Watches take turns in the same way, after every `WATCH_ROWS` changes or `WATCH_BYTES` of all watches
together: one may resume at an old revision, and a commit goes to all watches of its space. So does
a request that works on many records without a wait (`LongWork`), and a page that is rendered.
"""

import asyncio
from asyncio import Future
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from keyhouse.scheduling.turns import Line, Turns

__all__ = ["LongWork", "WorkTurns", "wait_for_turn", "work_turns"]

SHARED_ROWS: Final = 64
"""Rows that pages of one turn may have together. A larger page has its turn for itself."""

SHARED_BYTES: Final = 64 * 1_024
"""A page of more bytes ends its turn: no other shares it."""

WATCH_ROWS: Final = 64
"""Changes are decoded one by one, and cost more than the rows of a page."""

WATCH_BYTES: Final = 256 * 1_024
"""Bytes of changes of one turn: those of a page of a long read."""

LONG_STEP_SECONDS: Final = 0.001
QUIET_TURNS: Final = 8
"""Turns of the event loop without a page, after one that took long: a request needs three to five
of them, and would wait for a page in each. An idle loop makes them in a few microseconds."""

PAUSED_STEP_SECONDS: Final = 0.002
PAUSE_SHARE: Final = 0.25
"""The pause after a turn that took this long, as a share of its time. Decoding a large document
holds the GIL, which the commit thread needs for each of its statements."""


class WorkTurns:
    """The turns of one event loop: one place, held for a turn of the loop or, after a long one, for
    several. `turn = enter(space, rows)`; if it is not None, `await turn`."""

    __slots__ = (
        "_line",
        "_loop",
        "_quiet",
        "_rows_left",
        "_seconds",
        "_started",
        "_turns",
        "_watch_bytes",
        "_watch_rows",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns = Turns[Future[None]](self._start, places=1)
        self._line: Line[Future[None]]  # the one that has its turn
        self._rows_left = 0  # of the pages that may share this turn
        self._started = self._seconds = 0.0
        self._quiet = 0
        self._watch_rows = self._watch_bytes = 0  # of all watches, since one of them had its turn

    def enter(self, space: str, rows: int) -> Future[None] | None:
        """Take a turn for a page of so many rows now, or return a future that is done then."""
        if rows <= self._rows_left:
            self._rows_left -= rows
            return None
        line = self._turns.line(space)
        if not self._turns.try_start(line):
            return self.wait(space)
        self._begin(line)
        self._rows_left = SHARED_ROWS - rows
        return None

    def leave(self, size: int) -> None:
        """Count the bytes of a page that was read: after a large one, no other shares its turn."""
        if size > SHARED_BYTES:
            self._rows_left = 0

    def wait(self, space: str) -> Future[None]:
        """Return a future that is done in a later turn of the event loop."""
        self._rows_left = 0
        future = self._loop.create_future()
        self._turns.wait(self._turns.line(space), future)
        return future

    def watch(self, space: str, size: int) -> Future[None] | None:
        """Count a change with a value of `size` bytes; return the turn to wait for, if any."""
        self._watch_rows += 1
        self._watch_bytes += size
        if self._watch_rows <= WATCH_ROWS and self._watch_bytes <= WATCH_BYTES:
            return None
        turn = self.wait(space)
        turn.add_done_callback(self._watched)
        return turn

    def _watched(self, _: Future[None]) -> None:
        self._watch_rows = self._watch_bytes = 0

    def _start(self, line: Line[Future[None]], future: Future[None]) -> bool:
        if future.done():  # its task was cancelled
            return False
        future.set_result(None)
        self._begin(line)
        return True

    def _begin(self, line: Line[Future[None]]) -> None:
        self._line = line
        self._started = perf_counter()
        self._loop.call_soon(self._end)  # in the next turn, after the step of its task

    def _end(self) -> None:
        self._rows_left = 0
        self._seconds = perf_counter() - self._started
        if self._seconds > LONG_STEP_SECONDS:
            self._quiet = QUIET_TURNS
            self._loop.call_soon(self._pass)
        else:
            self._turns.leave(self._line)

    def _pass(self) -> None:
        self._quiet -= 1
        if self._quiet:
            self._loop.call_soon(self._pass)
        elif self._seconds > PAUSED_STEP_SECONDS:
            self._loop.call_later(PAUSE_SHARE * self._seconds, self._turns.leave, self._line)
        else:
            self._turns.leave(self._line)


_turns_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, WorkTurns] = WeakKeyDictionary()


def work_turns() -> WorkTurns:
    """Return the turns of the running event loop."""
    loop = asyncio.get_running_loop()
    turns = _turns_by_loop.get(loop)
    if turns is None:
        turns = _turns_by_loop[loop] = WorkTurns(loop)
    return turns


async def wait_for_turn(space: str) -> None:
    """Wait for a turn of the event loop, round robin over the spaces."""
    await work_turns().wait(space)


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
