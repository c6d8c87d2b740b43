"""Paces pushes to many event streams, so that requests are answered meanwhile.

A push costs about 25 µs, so a change that goes to 1,000 streams is 25 ms of work, and nobody waits
for it as for an answer. A request needs two or three turns of the event loop, and waits for the
rest of each. So a turn has at most `PUSHES_PER_TURN` pushes, over all deliveries of a service
together: changes of any records, heartbeats, and the ends of streams. Deliveries take turns, so
that a small one does not wait for a large one.

The pacer does not sleep in between: Linux takes the core from a thread that has used more than its
share, and one that sleeps loses what was left of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

__all__ = ["PushPacer"]

T = TypeVar("T")

PUSHES_PER_TURN: Final = 4
"""Streams that are written to in one turn of the event loop: about a tenth of a millisecond."""


class PushPacer:
    """Calls functions for many streams, a few in each turn of the event loop."""

    def __init__(self) -> None:
        self._deliveries: deque[_Delivery] = deque()
        self._is_idle = True

    async def push(self, function: Callable[[T], object], streams: Iterable[T]) -> None:
        """Call the function for each stream; return after the last call. An exception of it ends
        only this delivery, and is raised here."""
        loop = asyncio.get_running_loop()
        delivery = _Delivery((function(stream) for stream in [*streams]), loop.create_future())
        self._deliveries.append(delivery)
        if self._is_idle:
            self._is_idle = False
            self._push_some(loop)
        await delivery.ended

    def _push_some(self, loop: asyncio.AbstractEventLoop) -> None:
        """Push in this turn. It is idle after a turn with nothing to push, so that many small
        deliveries in one turn are bounded too."""
        if not self._deliveries:
            self._is_idle = True
            return
        for _ in range(PUSHES_PER_TURN):
            if self._deliveries and (delivery := self._deliveries.popleft()).push_next():
                self._deliveries.append(delivery)
        loop.call_soon(self._push_some, loop)


class _Delivery:
    """The calls of one `push`, and the future that ends with them."""

    __slots__ = ("_calls", "ended")

    def __init__(self, calls: Iterator[object], ended: "asyncio.Future[None]") -> None:
        self._calls = calls
        self.ended = ended

    def push_next(self) -> bool:
        """Return whether there may be another call."""
        if self.ended.done():  # its caller was cancelled
            return False
        try:
            next(self._calls)
            return True
        except StopIteration:
            self.ended.set_result(None)
        except Exception as error:
            self.ended.set_exception(error)
        return False
