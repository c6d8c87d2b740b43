"""The seam between a system and the program that serves it.

A system's module `service` has one function, `part(context) -> Part`, and beside it the Struct of
its `Settings`, by which a table is checked before anything is opened. The program opens the engine,
reads the settings and runs the faces; the system says what is answered. Neither knows the other's
inside.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from keyhouse.auth.caller import Authenticator
from keyhouse.auth.settings import TENANT_PATTERN
from keyhouse.engine import Engine
from keyhouse.http.errors import PROBLEM, ErrorFormat
from keyhouse.http.router import Route
from keyhouse.nats.endpoint import Endpoint
from keyhouse.service.rates import RateLimiter

__all__ = ["Service", "ServiceContext", "ServiceSpec"]


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a system is given.

    `settings` is the system's own table of `keyhouse.toml`, with what the environment says laid
    over it: the system makes a Struct of its own of it with `read_settings`, which refuses what it
    does not know. `data` is a folder for its files, such as secrets. `engine` is open, and stays
    the business of who opened it.
    """

    engine: Engine
    data: Path
    metrics: CollectorRegistry
    settings: Mapping[str, Any] = {}


class ServiceSpec(msgspec.Struct, kw_only=True):
    """A service to run.

    `routes` are mounted below `/<name>`; those with a scope call `auth` to identify the caller, and
    `rates` to limit its requests. `title` and `about` head the OpenAPI document. `error_format` is
    the format of every error below the prefix. `endpoints` are answered in the queue group `queue`,
    by default the name: processes in one group share the requests. `tasks` run as long as the
    service and are cancelled at shutdown: a sweep, a job. `ready` raises the KeyhouseError that
    keeps the service from answering.
    """

    name: str
    title: str = ""
    about: str = ""
    routes: Sequence[Route] = ()
    auth: Authenticator | None = None
    rates: RateLimiter | None = None
    error_format: ErrorFormat = PROBLEM
    endpoints: Sequence[Endpoint] = ()
    queue: str | None = None
    tasks: Sequence[Callable[[], Awaitable[None]]] = ()
    ready: Callable[[], Awaitable[None]] | None = None


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A system's service: its settings, how it is assembled, and the tokens it accepts.

    `settings` is the Struct of its settings table, checked before anything is opened. `build`
    assembles the service. `tenant_pattern` matches the tenants that a token may name; `scopes` are
    those that a tenant's token may have, and `operator_scopes` those of an operator's. A service
    without either has no such tokens.
    """

    settings: type[msgspec.Struct]
    build: Callable[[ServiceContext], ServiceSpec]
    tenant_pattern: str = TENANT_PATTERN
    scopes: tuple[str, ...] = ()
    operator_scopes: tuple[str, ...] = ()
