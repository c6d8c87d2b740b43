"""Turns: work of many tenants on one event loop, started in a fair order and within bounds.

Theory of operation. All tenants share one event loop, and the one that asks most would have most
of it. So each tenant has a line. Work starts at once if its line is empty and there is a place for
it; otherwise it waits in its line, and lines take turns: one piece of work of each, round robin. A
tenant waits for its own work and for one piece of work of each other tenant, however much those
have sent.

| state of work | enters when | leaves when |
|---|---|---|
| running | `try_start`: its line is empty, there is a place, and the turn has room | `leave` |
| waiting | `wait`: otherwise | it is first in its line, at the line's turn: running |
| rejected | too much waits, of its line or of all | at once |

| state of a line | meaning |
|---|---|
| idle | nothing of it waits |
| ready | work waits, and it has a place left of its share; it is in `_ready` once |
| full | work waits, and as much is running as its share allows, or it rests |

The bounds, each of which may be absent:

- *Places.* `places` run at once, and `share` of one line. A place is held until `leave`.
- *Turns of the event loop.* `starts` start per turn, by `try_start` and from lines together; work
  counts as one more for each `start_bytes`. After `seconds` no further one starts. Then replies are
  sent, and other tasks run.
- *Waiting* (`Bounds`). Count and bytes, of one line and of all. A part is kept for lines that have
  few waiting: floods of some tenants do not lead to rejections of others.

| user | line | a place is held until | per turn of the loop | waiting |
|---|---|---|---|---|
| HTTP requests, `Places` | tenant | the response is ready | | count of a line |
| NATS requests, `nats.listener` | tenant | the reply is sent | 32, 2 ms | count and bytes |
| NATS pushes, `nats.push_queue` | tenant | it is in the buffer | 32, 128 KiB | bytes |
| event streams, `service.push_pacer` | delivery | its call returns | 4 | |
| long work, `scheduling.work_turns` | space | a later turn of the loop | 1 | |

`try_start` and `leave` are on the path of every request: they neither allocate nor wait.
"""

import asyncio
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from keyhouse.errors import RateError

__all__ = ["Bounds", "Line", "Places", "Turns"]

W = TypeVar("W")

MANY: Final = sys.maxsize

LINES_MAX: Final = 10_000
"""Lines that are kept for their next work, after which those without work are dropped."""


class Line(Generic[W]):
    """The work of one tenant: how much is running, and what waits. `due_at` is its user's."""

    __slots__ = ("bytes", "due_at", "is_ready", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[tuple[W, int]] = deque()
        self.bytes = 0
        self.is_ready = False
        self.due_at = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that may wait: of one line, of all lines, and of all before work is rejected whose
    line has `few` waiting, or more."""

    line: int = MANY
    line_bytes: int = MANY
    total: int = MANY
    total_bytes: int = MANY
    few: int = 0
    floods: int = MANY
    floods_bytes: int = MANY


_NO_BOUNDS: Final = Bounds()


class Turns(Generic[W]):
    """Starts work in turns. `start(line, work)` starts what has waited, and returns whether it is
    running: then `leave` ends it. It must not raise."""

    __slots__ = (
        "_bounds",
        "_bytes",
        "_has_budget",
        "_idle",
        "_is_scheduled",
        "_left",
        "_lines",
        "_lines_max",
        "_places",
        "_ready",
        "_seconds",
        "_share",
        "_start",
        "_start_bytes",
        "_starts",
        "running",
        "waiting",
    )

    def __init__(
        self,
        start: Callable[[Line[W], W], bool],
        *,
        places: int = MANY,
        share: int = MANY,
        starts: int | None = None,
        start_bytes: int = MANY,
        seconds: float = math.inf,
        bounds: Bounds = _NO_BOUNDS,
        lines_max: int = LINES_MAX,
    ) -> None:
        self.running = self.waiting = 0
        self._start = start
        self._places = places
        self._share = share
        self._has_budget = starts is not None
        self._starts = self._left = starts or MANY
        self._start_bytes = start_bytes
        self._seconds = seconds
        self._bounds = bounds
        self._bytes = 0
        self._lines: dict[str, Line[W]] = {}
        self._lines_max = lines_max
        self._ready: deque[Line[W]] = deque()
        self._is_scheduled = False  # the next turn of the event loop calls `_resume`
        self._idle: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def line(self, name: str) -> Line[W]:
        """Return the line of a tenant. It stays the same one while it has work."""
        line = self._lines.get(name)
        if line is None:
            if len(self._lines) >= self._lines_max:
                self.forget_idle()
                self._lines_max = max(self._lines_max, 2 * len(self._lines))
            line = self._lines[name] = self._new_line()
        return line

    def _new_line(self) -> Line[W]:
        return Line()

    def forget_idle(self) -> None:
        """Drop the lines without work, after the caller has dropped its own references."""
        self._lines = {
            name: line for name, line in self._lines.items() if line.running or line.waiting
        }

    def try_start(self, line: Line[W], size: int = 0) -> bool:
        """Return whether work of the line may start now, and count it as running."""
        left = self._left
        if not left or line.waiting or line.running >= self._share or self.running >= self._places:
            return False
        if self._has_budget:
            if left == self._starts:
                asyncio.get_running_loop().call_soon(self._begin_turn)
            self._left = left - 1 if size < self._start_bytes else self._left_after(size)
        self.running += 1
        line.running += 1
        return True

    def _left_after(self, size: int) -> int:
        return max(0, self._left - max(1, size // self._start_bytes))

    def wait(self, line: Line[W], work: W, size: int = 0) -> bool:
        """Let work wait for its line's turn, which is in a later turn of the event loop. Returns
        False if too much waits."""
        bounds, count = self._bounds, len(line.waiting)
        if count < bounds.few:
            count_max, bytes_max = bounds.total, bounds.total_bytes
        else:
            count_max, bytes_max = bounds.floods, bounds.floods_bytes
            if count >= bounds.line or line.bytes + size > bounds.line_bytes:
                return False
        if self.waiting >= count_max or self._bytes + size > bytes_max:
            return False
        line.waiting.append((work, size))
        line.bytes += size
        self.waiting += 1
        self._bytes += size
        if not line.is_ready and line.running < self._share:
            line.is_ready = True
            self._ready.append(line)
            if not self._is_scheduled and self.running < self._places:
                self._schedule()
        return True

    def leave(self, line: Line[W]) -> None:
        """End work that was running; work that waits for its place starts."""
        self.running -= 1
        line.running -= 1
        if line.waiting and not line.is_ready:
            line.is_ready = True
            self._ready.append(line)
        if not self._is_scheduled and (self._ready or self._idle is not None):
            self._run()

    def rest(self, line: Line[W], seconds: float) -> None:
        """Take a part of the line's share, but no place, for some time."""
        line.running += 1
        asyncio.get_running_loop().call_later(seconds, self._end_rest, line)

    def _end_rest(self, line: Line[W]) -> None:
        self.running += 1
        self.leave(line)

    def withdraw(self) -> list[W]:
        """Remove and return all work that waits."""
        withdrawn = [work for line in self._lines.values() for work, _ in line.waiting]
        for line in self._lines.values():
            line.waiting.clear()
            line.bytes, line.is_ready = 0, False
        self._ready.clear()
        self.waiting = self._bytes = 0
        return withdrawn

    async def wait_until_idle(self) -> None:
        """Wait until nothing is running or waiting."""
        while self.running or self.waiting:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._resume)

    def _begin_turn(self) -> None:
        """Make room for the starts of another turn of the event loop."""
        self._left = self._starts

    def _resume(self) -> None:
        self._is_scheduled = False
        self._run()

    def _run(self) -> None:
        """Start work that waits, as much as this turn has room for: work that ends at once makes
        room for the next, and other tasks must run too."""
        ready, deadline = self._ready, perf_counter() + self._seconds
        while ready and self._left and self.running < self._places and perf_counter() <= deadline:
            line = ready.popleft()
            waiting = line.waiting
            work, size = waiting.popleft()
            line.bytes -= size
            self.waiting -= 1
            self._bytes -= size
            if self._has_budget:
                if self._left == self._starts:
                    asyncio.get_running_loop().call_soon(self._begin_turn)
                self._left = self._left - 1 if size < self._start_bytes else self._left_after(size)
            self.running += 1
            line.running += 1
            if not self._start(line, work):
                self.running -= 1
                line.running -= 1
            if waiting and line.running < self._share:
                ready.append(line)
            else:
                line.is_ready = False
        if ready and self.running < self._places and not self._is_scheduled:
            self._schedule()
        if self._idle is not None and not (self.running or self.waiting or self._idle.done()):
            self._idle.set_result(None)


class Places(Turns["asyncio.Future[None]"]):
    """Places for the requests of tenants: `line = line(tenant)`; if `try_start(line)` is False,
    `await wait_for_place(line)`; then `leave(line)`."""

    __slots__ = ()

    def __init__(self, places: int, share: int, waiting_max: int) -> None:
        super().__init__(_admit, places=places, share=share, bounds=Bounds(line=waiting_max))

    async def wait_for_place(self, line: Line["asyncio.Future[None]"]) -> None:
        """Wait until the work is running. RateError if too much waits already. The place is left if
        the caller is cancelled just after it got it."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.wait(line, place):
            raise RateError("Too many requests at once: wait for some of them.", retry_after=1)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.leave(line)
            raise


def _admit(_: Line[Any], place: "asyncio.Future[None]") -> bool:
    if place.done():  # its request was cancelled
        return False
    place.set_result(None)
    return True
