"""The host of a service: further engines, threads for blocking calls, the bus, and the limits that
its workers share.

The process that runs a service makes one. A program or a test that builds a service by itself makes
its own:

    async with ServiceHost() as host:
        spec = build(ServiceContext(engine=engine, data=folder, metrics=registry, host=host))
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.nats.bus import Bus
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.limit_table import LimitSlots, LimitTable
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.service.worker import ALONE, Worker

__all__ = ["ServiceHost"]

Opener = Callable[[str, str], Awaitable[Engine]]
"""Opens an engine by its URL and name, and closes it later."""


class ServiceHost:
    """`opener` opens engines in place of the host, which then does not close them. `worker` is the
    place of the process among those of one `keyhouse serve`, which share the `table` of limits;
    `shares_engines`: other hosts may serve the same rows. Without both, limits are those of the
    process."""

    def __init__(
        self,
        *,
        opener: Opener | None = None,
        blocking: BlockingPool | None = None,
        bus: Bus | None = None,
        worker: Worker = ALONE,
        table: LimitTable | None = None,
        shares_engines: bool = False,
    ) -> None:
        self.worker = worker
        self._shares_engines = shares_engines
        self._table = table
        self._opener = opener
        self._stack = AsyncExitStack()
        self._bus = bus or Bus()
        self._owns_pool = blocking is None
        self.blocking = blocking or BlockingPool()
        self.uses_bus = False
        """True if the service asked for the bus."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the engines and, if the host made it, the pool."""
        if self._owns_pool:
            await self.blocking.close()
        await self._stack.aclose()

    @property
    def bus(self) -> Bus:
        self.uses_bus = True
        return self._bus

    def slots(self, kind: str) -> LimitSlots | None:
        """Return the slots of a kind of limit that the workers share; None without others."""
        return None if self._table is None else self._table.slots(kind)

    def shares(self, engine: Engine) -> bool:
        """Return whether other processes may serve the rows of the engine."""
        is_alone = self._table is None and not self._shares_engines
        return engine.capabilities.shared and not is_alone

    def shared_limit(self, kind: str, engine: Engine) -> SharedLimit | None:
        """Return the limit of this kind that other processes have together with this one, those of
        other hosts by rows of the engine; None without others."""
        if not self.shares(engine):
            return None
        return SharedLimit(kind, self.slots(kind), engine if self._shares_engines else None)

    async def open(self, url: str, name: str) -> Engine:
        if self._opener is not None:
            return await self._opener(url, name)
        engine = await open_engine(url)
        self._stack.push_async_callback(engine.close)
        return engine
