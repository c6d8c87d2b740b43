"""A running service: tenants, quotas, rate limits, metrics, operation log and background tasks,
assembled from settings.

A system's `service.py` makes one of these, hands it to its operations, and returns
`runtime.spec(...)`: a `ServiceRuntime` if each caller has a tenant, a `SharedRuntime` if all
callers share the same spaces.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from keyhouse.auth import JwtAuth
from keyhouse.engine import Engine
from keyhouse.nats.bus import Bus
from keyhouse.service.key_ring import read_key_ring
from keyhouse.service.measured_routes import RouteTable, measured_routes
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.recovery import Recovery
from keyhouse.service.secret_ids import SecretIds, secret_id
from keyhouse.service.settings import AnyTenantSettings, RuntimeSettings, quota, rate_limiter
from keyhouse.service.spec import Keyspace, ServiceContext, ServiceSpec
from keyhouse.service.sweeper import Sweeper
from keyhouse.service.system import System
from keyhouse.service.tenants import Tenant, Tenants
from keyhouse.service.usage import Quota
from keyhouse.service.usage_scan import UsageScan

__all__ = ["ServiceRuntime", "SharedRuntime"]

T = TypeVar("T", bound=Tenant)


class SharedRuntime:
    """The runtime of a service without tenants. `metrics` is registered here; by default, its names
    begin with the system's. `key_ring` is the setting of a system with sealed members; the
    attribute is its key ring.
    """

    def __init__(
        self,
        system: System,
        context: ServiceContext,
        settings: RuntimeSettings,
        *,
        metrics: OperationMetrics | None = None,
        log: OperationLog | None = None,
        key_ring: str | None = None,
        quota: Quota | None = None,
    ) -> None:
        self.system = system
        self.engine = context.engine
        self._host = context.host
        self._worker = context.worker
        self.is_shared = context.is_shared
        self.metrics = metrics = metrics or OperationMetrics(system.name)
        context.metrics.register(metrics)
        self.log = log or OperationLog(system.name, settings.slow_seconds)
        self.quota = quota or Quota()
        self.key_ring = read_key_ring(key_ring, system.schemas, table=system.name)
        self.rates = rate_limiter(settings, context.engine.clock, context.shared_limit("rates"))
        self.sweeper = Sweeper(
            self.engine, settings.sweep_seconds, metrics, self.log, is_shared=self.is_shared
        )

    @cached_property
    def bus(self) -> Bus:
        """The bus of the process; off in a program that builds the service by itself."""
        return Bus() if self._host is None else self._host.bus

    def spec(
        self,
        *,
        routes: RouteTable = (),
        tasks: Sequence[Callable[[], Awaitable[None]]] = (),
        fixed: Mapping[str, str] = MappingProxyType({}),
        secrets: Mapping[str, bytes] = MappingProxyType({}),
        **parts: Any,
    ) -> ServiceSpec:
        """Return the spec of the service, with the tasks that every service has. Every route of the
        table is measured and logged by its name; files are not.

        `secrets` are what all processes of the service must share, by the setting; that of tokens
        and the key ring are known.

        `keyspaces` default to the system's schemas on the service's engine, with the settings of
        the service for `fixed` fields of keys.
        """
        parts.setdefault(
            "keyspaces",
            [
                Keyspace(schema=schema, engine=self.engine, key_ring=self.key_ring, fixed=fixed)
                for schema in self.system.schemas
            ],
        )
        name = ":".join([self.system.name, *fixed.values()])
        recovery = Recovery(
            name, parts["keyspaces"], self.log, worker=self._worker, is_shared=self.is_shared
        )
        ids = {key: secret_id(each) for key, each in self._secrets(parts, secrets).items()}
        secret_ids = SecretIds(
            self.engine, name, ids if self.is_shared else {}, worker=self._worker
        )
        parts.setdefault("figures", OperatorFigures(self.metrics, self.log, self.quota, self.rates))
        return ServiceSpec(
            name=self.system.name,
            routes=measured_routes(routes, self.metrics, self.log),
            tasks=[self.sweeper.run, recovery.run, secret_ids.run, *tasks],
            **parts,
        )

    def _secrets(
        self, parts: Mapping[str, Any], secrets: Mapping[str, bytes]
    ) -> Mapping[str, bytes]:
        auth = parts.get("auth")
        signing = auth.secret if isinstance(auth, JwtAuth) else None
        index_key = None if self.key_ring is None else self.key_ring.index_key
        known = {"jwt_secret": signing, "key_ring": index_key}
        return {name: each for name, each in known.items() if each is not None} | dict(secrets)


class ServiceRuntime(SharedRuntime, Generic[T]):
    """`tenant` makes a tenant from its name, the engine and the quota. `options` are those of
    `SharedRuntime`."""

    def __init__(
        self,
        system: System,
        context: ServiceContext,
        settings: AnyTenantSettings,
        tenant: Callable[[str, Engine, Quota], T],
        **options: Any,
    ) -> None:
        super().__init__(
            system, context, settings, quota=quota(settings, is_shared=context.is_shared), **options
        )
        self.settings = settings
        self.tenants: Tenants[T] = Tenants(lambda name: tenant(name, self.engine, self.quota))
        self.usage_scan = UsageScan(
            system.schemas[0],
            self.engine,
            self.tenants.cached,
            self.metrics,
            self.log,
            is_shared=self.is_shared,
        )

    def spec(
        self, *, tasks: Sequence[Callable[[], Awaitable[None]]] = (), **parts: Any
    ) -> ServiceSpec:
        return super().spec(tasks=[self._scan_usage, *tasks], **parts)

    async def _scan_usage(self) -> None:
        await self.usage_scan.run(self.settings.usage_scan_seconds)
