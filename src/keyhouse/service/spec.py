"""The interface between a service and the process that runs it.

A `Service` has the Struct of its settings, which are checked before anything is opened, and
`build`, which assembles a `ServiceSpec` from a `ServiceContext` and these settings. The process
opens the engine, reads the settings and runs the listeners. `build` may be a coroutine function,
which can open further engines.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from keyhouse.auth.caller import Authenticator
from keyhouse.auth.settings import TENANT_PATTERN
from keyhouse.engine import Engine
from keyhouse.errors import UsageError
from keyhouse.http.errors import PROBLEM, ErrorFormat
from keyhouse.http.router import Route
from keyhouse.keyring import KeyRing
from keyhouse.nats.bus import Bus
from keyhouse.nats.endpoint import Endpoint
from keyhouse.schema import Schema
from keyhouse.service.host import ServiceHost
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.rates import RateLimiter
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.service.worker import ALONE, Worker
from keyhouse.settings import read_settings

__all__ = ["Keyspace", "Service", "ServiceContext", "ServiceSpec"]

P = ParamSpec("P")
R = TypeVar("R")


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a service.

    `settings` is its table of `keyhouse.toml`, of this `name`, merged with the environment. `data`
    is a folder for its files, such as secrets. `engine` is open, and is closed by the process that
    opened it. `host` is the source of everything else.
    """

    engine: Engine
    data: Path
    metrics: CollectorRegistry
    settings: Mapping[str, Any] = {}
    name: str = ""
    host: ServiceHost | None = None

    async def open(self, url: str, *, name: str) -> Engine:
        """Open a further engine, which the process closes after the service has stopped.

        `nats:` is the service's own NATS server, embedded or given. `name` tells the engines of a
        service apart in metrics and logs. It is part of the service's readiness.
        """
        return await self._host().open(url, name)

    async def run_blocking(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a function that blocks in a thread: see `keyhouse.service.blocking`."""
        return await self._host().blocking.run(function, *args, **kwargs)

    @property
    def worker(self) -> Worker:
        """The place of this process among those that share its data folder."""
        return ALONE if self.host is None else self.host.worker

    @property
    def bus(self) -> Bus:
        """The service's NATS connection, to publish, request and subscribe.

        Ask for it while the service is built: only then NATS is started for it. Calls raise
        UnavailableError if NATS is off.
        """
        return self._host().bus

    def shared_limit(self, kind: str) -> SharedLimit | None:
        """Return a limit of this service that other processes have together with this one; None
        without others. `kind` names the limit within the service."""
        if self.host is None:
            return None
        return self.host.shared_limit(f"{kind}:{self.name}", self.engine)

    @property
    def is_shared(self) -> bool:
        """True if other processes may write what this service stores."""
        return self.host is not None and self.host.shares(self.engine)

    def _host(self) -> ServiceHost:
        if self.host is None:
            raise UsageError("This ServiceContext has no host: give it `host=ServiceHost()`.")
        return self.host


class Keyspace(msgspec.Struct, frozen=True, kw_only=True):
    """A schema and the engine that holds its rows, for tools that work on any service.

    `key_ring` opens sealed members; without it they stay encrypted. `fixed` are the settings of the
    service for fields of the keys that its schema fixes.
    """

    schema: Schema
    engine: Engine
    key_ring: KeyRing | None = None
    fixed: Mapping[str, str] = {}


class ServiceSpec(msgspec.Struct, kw_only=True):
    """A service to run.

    `routes` are mounted below `/<name>`; those with a scope call `auth` to identify the caller, and
    `rates` to limit its requests. `address_rates` limits requests without a caller, or with
    rejected credentials, by the client's address (the /64 of an IPv6 address). `title`, `about`,
    `license` (an SPDX identifier) and `version` (by default that of Keyhouse) head the OpenAPI
    document; `examples` are commands to try, for the page at `/`. `error_format` is the format of
    every error below the prefix. `endpoints` are answered in the queue group `queue`, by default
    the name: processes in one group share the requests. `tasks` run as long as the service and are
    cancelled at shutdown: a sweep, a job. `ready` raises the KeyhouseError that keeps the service
    from answering. `keyspaces` are what it stores, and `figures` how it is used, for the Studio.
    """

    name: str
    title: str = ""
    about: str = ""
    license: str = "MIT"
    version: str = ""
    examples: Sequence[str] = ()
    routes: Sequence[Route] = ()
    auth: Authenticator | None = None
    rates: RateLimiter | None = None
    address_rates: RateLimiter | None = None
    error_format: ErrorFormat = PROBLEM
    endpoints: Sequence[Endpoint] = ()
    queue: str | None = None
    tasks: Sequence[Callable[[], Awaitable[None]]] = ()
    ready: Callable[[], Awaitable[None]] | None = None
    keyspaces: Sequence[Keyspace] = ()
    figures: OperatorFigures | None = None


Built = ServiceSpec | Awaitable[ServiceSpec]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A system's service: its settings, how it is assembled, and the tokens it accepts.

    `settings` is the Struct of its settings table, checked before anything is opened. `build`
    assembles the service from its context and settings; called as a function, a Service reads them
    from the context. `tenant_pattern` matches the tenants that a token may name; `scopes` are
    those that a tenant's token may have, and `operator_scopes` those of an operator's. A service
    without either has no such tokens.
    """

    settings: type[msgspec.Struct]
    build: Callable[[ServiceContext, Any], Built]
    tenant_pattern: str = TENANT_PATTERN
    scopes: tuple[str, ...] = ()
    operator_scopes: tuple[str, ...] = ()

    def __call__(self, context: ServiceContext) -> Built:
        settings = read_settings(self.settings, context.settings, table=context.name)
        return self.build(context, settings)
