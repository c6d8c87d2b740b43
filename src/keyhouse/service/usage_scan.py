"""The usage scan: counts what every tenant stores at an interval, for metrics and quotas.

One process counts for all that serve the engine; the others show its result.
"""

from collections.abc import Callable

from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError, KeyhouseError
from keyhouse.schema import Schema
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Size, measure
from keyhouse.store import Store, stored_spaces

__all__ = ["UsageScan"]


class UsageScan:
    """`cached` returns a tenant in use: it is counted through its own usage, so that its quota
    profits from the scan."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        cached: Callable[[str], Tenant | None],
        metrics: OperationMetrics,
        log: OperationLog,
        *,
        is_shared: bool = True,
    ) -> None:
        self._schema = schema
        self._engine = engine
        self._cached = cached
        self._metrics = metrics
        self._log = log
        self._is_shared = is_shared
        self.counted_at: int | None = None
        """When the last scan finished, by the engine's clock."""

    async def run(self, seconds: float) -> None:
        """Scan at every interval until cancelled; return at once if it is 0."""

        async def scan() -> float:
            await self.scan()
            return seconds

        if seconds:
            await SharedTask(
                self._engine,
                f"usage:{self._schema.name}",
                seconds,
                self._log,
                is_shared=self._is_shared,
                export=self._metrics.export_stored,
                adopt=self._metrics.adopt_stored,
            ).run(scan)

    async def scan(self) -> None:
        """Scan once. A failure is logged and leaves the previous result; the next run may
        succeed."""
        sizes: dict[str, Size] = {}
        try:
            async for name in stored_spaces(self._engine):
                try:
                    sizes[name] = await self.count(name)
                except KeyFieldError:
                    continue  # a space of another program
        except KeyhouseError as error:
            self._log.task_failed("usage scan", error)
            return
        self.counted_at = self._engine.clock.now()
        self._metrics.stored(sizes)

    async def count(self, name: str) -> Size:
        """Count what one tenant stores now."""
        tenant = self._cached(name)
        if tenant is not None and tenant.usage is not None:
            return await tenant.usage.count()
        return await measure(Store(self._schema, self._engine, name))
