"""Fair queue: requests of several tenants, started in turns.

Theory of operation. Tenants share NATS connections, so a flood of one tenant precedes the next
request of another in the bytes of a connection. Reading and queueing a message costs a fiftieth of
handling it. So only a few messages are started in the turn of the event loop in which they are read
(`START_PER_TURN_MAX`, a large message counting as several); the others are queued by tenant, and
every turn starts as many of them as `START_SECONDS` allows, one of each tenant after the other. A
tenant waits for its own requests and for one request of each other tenant, however many those have
sent.

| state of a message | enters when | leaves when |
|---|---|---|
| in flight | its tenant has no message pending, and there is a place | its reply is sent |
| pending | otherwise | it is its tenant's turn, and there is a place |
| rejected | too many messages or bytes are pending, of its tenant or of all | at once |

Places in flight and pending messages are bounded for all tenants together and for one tenant. A
quarter of the pending messages and bytes is for tenants that have few pending: floods of some
tenants do not lead to rejections of others. Messages of one tenant start in the order of arrival.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any, Final

from keyhouse.nats.eager_task import start
from keyhouse.nats.limits import (
    NATS_IN_FLIGHT_MAX,
    NATS_PENDING_BYTES_MAX,
    NATS_PENDING_MAX,
    NATS_TENANT_IN_FLIGHT_MAX,
    NATS_TENANT_PENDING_FEW,
    NATS_TENANT_PENDING_MAX,
)

__all__ = ["FairQueue", "TenantQueue"]

START_PER_TURN_MAX: Final = 32
"""Messages started per turn of the event loop, before replies are flushed."""

START_BYTES: Final = 4_096
"""A message counts as one more for each of these."""

START_SECONDS: Final = 0.002
"""Time after which no further message is started in a turn: one takes 0.03 to 1 ms."""

Work = Coroutine[Any, Any, None]


class TenantQueue:
    """The messages of one tenant: how many are in flight, and those pending."""

    __slots__ = ("bytes", "done", "has_turn", "in_flight", "pending")

    def __init__(self) -> None:
        self.in_flight = 0
        self.pending: deque[tuple[Callable[..., Work], tuple[Any, ...], int]] = deque()
        self.bytes = 0
        self.has_turn = False
        self.done: Callable[[BaseException | None], None]


class FairQueue:
    """Starts work of tenants in turns. `failed` is called with an exception that work raised."""

    def __init__(
        self,
        failed: Callable[[BaseException], None],
        *,
        in_flight_max: int = NATS_IN_FLIGHT_MAX,
        pending_max: int = NATS_PENDING_MAX,
    ) -> None:
        self.in_flight = 0
        self.pending = 0
        self.pending_max = pending_max
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._in_flight_max = in_flight_max
        self._tenant_in_flight_max = min(in_flight_max, NATS_TENANT_IN_FLIGHT_MAX)
        self._bytes = 0
        self._tenants: dict[str, TenantQueue] = {}
        self._turns: deque[TenantQueue] = deque()
        """Tenants with a message pending and a place for it; each is in it once."""
        self._is_scheduled = False
        self._starts_left = START_PER_TURN_MAX
        self._idle: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of tenants that have a queue."""
        return len(self._tenants)

    def tenant(self, name: str) -> TenantQueue:
        """Return the queue of a tenant. It stays the same one while the tenant has messages."""
        queue = self._tenants.get(name)
        if queue is None:
            queue = self._tenants[name] = TenantQueue()
            queue.done = partial(self._done, queue)
        return queue

    def forget_idle(self) -> None:
        """Drop the queues of tenants without messages, after the caller has dropped its own
        references."""
        self._tenants = {
            name: queue for name, queue in self._tenants.items() if queue.in_flight or queue.pending
        }

    def take_start(self, queue: TenantQueue, size: int) -> bool:
        """Return whether the tenant's next message may start at once, and count it as one of those
        that are started in this turn of the event loop, whatever connection they came over."""
        left = self._starts_left
        if (
            not left
            or queue.pending
            or queue.in_flight >= self._tenant_in_flight_max
            or self.in_flight >= self._in_flight_max
        ):
            return False
        if left == START_PER_TURN_MAX:
            self._loop.call_soon(self._next_turn)
        self._starts_left = left - 1 if size < START_BYTES else max(0, left - size // START_BYTES)
        return True

    def _next_turn(self) -> None:
        self._starts_left = START_PER_TURN_MAX

    def start(self, queue: TenantQueue, work: Work) -> None:
        """Never raises: an exception would end nats-py's reading, and with it the service."""
        self.in_flight += 1
        queue.in_flight += 1
        try:
            if not start(self._loop, work, queue.done):
                return
        except Exception as error:
            self._failed(error)
        self.in_flight -= 1
        queue.in_flight -= 1

    def append(
        self, queue: TenantQueue, size: int, make: Callable[..., Work], *arguments: Any
    ) -> bool:
        """Queue a message, to start as `make(*arguments)`; returns False if there are too many."""
        count = len(queue.pending)
        if count < NATS_TENANT_PENDING_FEW:
            count_max, bytes_max = self.pending_max, NATS_PENDING_BYTES_MAX
        else:
            count_max, bytes_max = 3 * self.pending_max // 4, 3 * NATS_PENDING_BYTES_MAX // 4
            if count >= NATS_TENANT_PENDING_MAX or queue.bytes + size > NATS_PENDING_BYTES_MAX // 2:
                return False
        if self.pending >= count_max or self._bytes + size > bytes_max:
            return False
        queue.pending.append((make, arguments, size))
        queue.bytes += size
        self.pending += 1
        self._bytes += size
        if not queue.has_turn and queue.in_flight < self._tenant_in_flight_max:
            queue.has_turn = True
            self._turns.append(queue)
            if not self._is_scheduled and self.in_flight < self._in_flight_max:
                self._is_scheduled = True
                self._loop.call_soon(self._resume)
        return True

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight or pending."""
        while self.in_flight or self.pending:
            self._idle = self._loop.create_future()
            await self._idle

    def _done(self, queue: TenantQueue, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
        self.in_flight -= 1
        queue.in_flight -= 1
        if queue.pending and not queue.has_turn:
            queue.has_turn = True
            self._turns.append(queue)
        if not self._is_scheduled and (self._turns or self._idle is not None):
            self._resume()

    def _resume(self) -> None:
        """Start pending messages, a bounded number per turn: one that ends at once makes room for
        the next, and other tasks must run too."""
        turns, deadline = self._turns, perf_counter() + START_SECONDS
        for _ in range(START_PER_TURN_MAX):
            if not turns or self.in_flight >= self._in_flight_max or perf_counter() > deadline:
                break
            queue = turns.popleft()
            make, arguments, size = queue.pending.popleft()
            queue.bytes -= size
            self.pending -= 1
            self._bytes -= size
            self.start(queue, make(*arguments))
            if queue.pending and queue.in_flight < self._tenant_in_flight_max:
                turns.append(queue)
            else:
                queue.has_turn = False
        self._is_scheduled = bool(turns) and self.in_flight < self._in_flight_max
        if self._is_scheduled:
            self._loop.call_soon(self._resume)
        elif self._idle is not None and not (self.in_flight or self.pending or self._idle.done()):
            self._idle.set_result(None)
