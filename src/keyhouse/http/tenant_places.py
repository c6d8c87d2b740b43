"""Places for requests in flight: a share for each tenant, and turns when all are taken.

A tenant that sends many requests at once has `share` of them handled at a time; the others wait in
its own queue. When the places of all tenants together are taken, a free one goes to the waiting
tenants round robin. A streamed response has left its place: what it holds is limited by bytes.
"""

import asyncio
from collections import deque

from keyhouse.errors import RateError
from keyhouse.http.limits import HTTP_PLACES, HTTP_TENANT_PLACES, HTTP_TENANT_WAITING_MAX


class TenantPlaces:
    """`waiting = enter(tenant)`; if it is not None, `await wait(tenant, waiting)`; then `leave`."""

    __slots__ = ("_free", "_running", "_share", "_turns", "_waiting", "_waiting_max")

    def __init__(
        self,
        places: int = HTTP_PLACES,
        share: int = HTTP_TENANT_PLACES,
        waiting_max: int = HTTP_TENANT_WAITING_MAX,
    ) -> None:
        self._free = places
        self._share = share
        self._waiting_max = waiting_max
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._turns: dict[str, None] = {}  # tenants that wait and have a share left, next first

    def enter(self, tenant: str) -> asyncio.Future[None] | None:
        """Take a place, or return a future that has one. RateError if too many wait already."""
        running = self._running.get(tenant, 0)
        if self._free > 0 and running < self._share:
            self._running[tenant] = running + 1
            self._free -= 1
            return None
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= self._waiting_max:
            raise RateError("Too many requests at once: wait for some of them.", retry_after=1)
        future = asyncio.get_running_loop().create_future()
        queue.append(future)
        if running < self._share:
            self._turns.setdefault(tenant)
        return future

    async def wait(self, tenant: str, place: asyncio.Future[None]) -> None:
        """Wait for the place. It is left if the caller is cancelled just after it got it."""
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.leave(tenant)
            raise

    def leave(self, tenant: str) -> None:
        running = self._running[tenant] - 1
        if running:
            self._running[tenant] = running
        else:
            del self._running[tenant]
        self._free += 1
        if self._waiting:
            if tenant in self._waiting:
                self._turns.setdefault(tenant)
            self._admit()

    def _admit(self) -> None:
        while self._turns and self._free > 0:
            tenant = next(iter(self._turns))
            del self._turns[tenant]
            queue = self._waiting[tenant]
            future = queue.popleft()
            running = self._running.get(tenant, 0)
            if not future.done():  # else its request was cancelled
                self._running[tenant] = running = running + 1
                self._free -= 1
                future.set_result(None)
            if not queue:
                del self._waiting[tenant]
            elif running < self._share:
                self._turns[tenant] = None  # behind the other tenants
