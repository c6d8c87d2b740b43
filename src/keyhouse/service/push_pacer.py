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
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from keyhouse.scheduling.turns import Line, Turns

__all__ = ["PushPacer"]

T = TypeVar("T")

PUSHES_PER_TURN: Final = 4
"""Streams that are written to in one turn of the event loop: about a tenth of a millisecond."""


class PushPacer:
    """Calls functions for many streams, a few in each turn of the event loop. A delivery is a line
    of turns: its next call waits behind those of the others."""

    def __init__(self) -> None:
        self._turns = Turns[_Delivery](self._push_next, starts=PUSHES_PER_TURN)

    async def push(self, function: Callable[[T], object], streams: Iterable[T]) -> None:
        """Call the function for each stream; return after the last call. An exception of it ends
        only this delivery, and is raised here."""
        calls = (function(stream) for stream in [*streams])
        delivery = _Delivery(calls, asyncio.get_running_loop().create_future())
        line = Line[_Delivery]()
        while self._turns.try_start(line):
            self._turns.leave(line)
            if not delivery.push_next():
                break
        else:
            self._turns.wait(line, delivery)
        await delivery.ended

    def _push_next(self, line: Line["_Delivery"], delivery: "_Delivery") -> bool:
        if delivery.push_next():
            self._turns.wait(line, delivery)
        return False


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
