"""A running service: tenants, quotas, rate limits, metrics, operation log and background tasks,
assembled from settings.

A system's `service.py` makes one of these, hands it to its operations, and returns
`runtime.spec(...)`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

import msgspec

from keyhouse.engine import Engine
from keyhouse.http import FLAT, NESTED, PROBLEM, Route
from keyhouse.nats.bus import Bus
from keyhouse.service.key_ring import read_key_ring
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog, error_code
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.recovery import Recovery
from keyhouse.service.settings import AnyTenantSettings, quota, rate_limiter
from keyhouse.service.spec import Keyspace, ServiceContext, ServiceSpec
from keyhouse.service.sweeper import Sweeper
from keyhouse.service.system import System
from keyhouse.service.tenants import Tenant, Tenants
from keyhouse.service.usage import Quota
from keyhouse.service.usage_scan import UsageScan

__all__ = ["ServiceRuntime"]

T = TypeVar("T", bound=Tenant)

_ERROR_FORMATS: Final = {each.name: each for each in (PROBLEM, FLAT, NESTED)}


class ServiceRuntime(Generic[T]):
    """`tenant` makes a tenant from its name, the engine and the quota. `metrics` is registered
    here. `key_ring` is the setting of a system with sealed members; the attribute is its key ring.
    """

    def __init__(
        self,
        system: System,
        context: ServiceContext,
        settings: AnyTenantSettings,
        tenant: Callable[[str, Engine, Quota], T],
        *,
        metrics: OperationMetrics,
        log: OperationLog | None = None,
        key_ring: str | None = None,
    ) -> None:
        self.system = system
        self.engine = context.engine
        self._host = context.host
        self.settings = settings
        self.metrics = metrics
        context.metrics.register(metrics)
        self.log = log or OperationLog(system.name, settings.slow_seconds)
        self.quota = quota(settings)
        self.key_ring = read_key_ring(key_ring, system.schemas, table=system.name)
        self.rates = rate_limiter(settings, context.engine.clock)
        self.tenants: Tenants[T] = Tenants(lambda name: tenant(name, self.engine, self.quota))
        self.sweeper = Sweeper(self.engine, settings.sweep_seconds, metrics, self.log)
        self.usage_scan = UsageScan(
            system.schemas[0], self.engine, self.tenants.cached, metrics, self.log
        )

    @property
    def bus(self) -> Bus:
        """The bus of the process; off in a program that builds the service by itself."""
        return Bus() if self._host is None else self._host.bus

    def spec(
        self,
        *,
        routes: Sequence[Route] = (),
        tasks: Sequence[Callable[[], Awaitable[None]]] = (),
        **parts: Any,
    ) -> ServiceSpec:
        """Return the spec of the service, with the tasks that every service has.

        `keyspaces` default to the system's schemas on the service's engine.
        """
        parts.setdefault(
            "keyspaces",
            [
                Keyspace(schema=schema, engine=self.engine, key_ring=self.key_ring)
                for schema in self.system.schemas
            ],
        )
        recovery = Recovery(parts["keyspaces"], self.log)
        parts.setdefault("figures", OperatorFigures(self.metrics, self.log, self.quota, self.rates))
        return ServiceSpec(
            name=self.system.name,
            error_format=_ERROR_FORMATS[self.system.error_format],
            routes=routes,
            tasks=[self.sweeper.run, self._scan_usage, recovery.run, *tasks],
            **parts,
        )

    def metered(self, routes: Mapping[str, Route] | Sequence[tuple[str, Route]]) -> Sequence[Route]:
        """Return the routes; those of an operation, by its name, have handlers that are measured
        and logged."""
        return [
            msgspec.structs.replace(route, handler=self._metered(operation, route.handler))
            if operation in self.metrics.operations
            else route
            for operation, route in (routes.items() if isinstance(routes, Mapping) else routes)
        ]

    def _metered(
        self, operation: str, handler: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        metrics, log = self.metrics, self.log
        total = None if metrics.has_tenants else metrics.timing(operation, "")

        @wraps(handler)
        async def metered(**arguments: Any) -> Any:
            start = perf_counter()
            try:
                response = await handler(**arguments)
            except Exception as error:
                metrics.failed(_tenant(arguments), error_code(error))
                raise
            seconds = perf_counter() - start
            timing = total or metrics.timing(operation, _tenant(arguments))
            timing.add(seconds)
            if seconds >= log.logged_from:
                log.done(operation, _tenant(arguments), seconds, _described(arguments))
            return response

        return metered

    async def _scan_usage(self) -> None:
        await self.usage_scan.run(self.settings.usage_scan_seconds)


def _tenant(arguments: Mapping[str, Any]) -> str:
    caller = arguments.get("caller")
    return "" if caller is None else caller.tenant


def _described(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path parameters for the log: never a body."""
    return {name: value for name, value in arguments.items() if isinstance(value, str)}
