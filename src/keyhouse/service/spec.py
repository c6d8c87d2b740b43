"""The seam between a system and the program that serves it.

A system's module `service` has one function, `part(context) -> Part`, and beside it the Struct of its `Settings`, by which a
table is checked before anything is opened. The program opens the engine, reads the settings and runs the faces; the system
says what is answered. Neither knows the other's inside.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from keyhouse.auth.caller import Authenticator
from keyhouse.auth.jwt_auth import TENANT_PATTERN
from keyhouse.engine import Engine
from keyhouse.http.route import Route
from keyhouse.nats.endpoint import Endpoint
from keyhouse.service.rates import RateLimiter

__all__ = ["Service", "ServiceContext", "ServiceSpec"]


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a system is given.

    `settings` is the system's own table of `keyhouse.toml`, with what the environment says laid over it: the system makes
    a Struct of its own of it with `read_settings`, which refuses what it does not know. `data` is a folder for its files,
    such as secrets. `engine` is open, and stays the business of who opened it.
    """

    engine: Engine
    data: Path
    metrics: CollectorRegistry
    settings: Mapping[str, Any] = {}


class ServiceSpec(msgspec.Struct, kw_only=True):
    """What a system has to be served.

    `routes` stand below `/<name>`; those with a scope ask `auth` who calls, and `rates` whether they may now. `title` and
    `about` head their OpenAPI document. `endpoints` are answered in the group `queue`, or one called by the name:
    processes in one group share the requests. `tasks` run for as long as the service does, and are cancelled at its end: a
    sweep, a job. `ready` raises the KeyhouseError that keeps the system from answering.
    """

    name: str
    title: str = ""
    about: str = ""
    routes: Sequence[Route] = ()
    auth: Authenticator | None = None
    rates: RateLimiter | None = None
    endpoints: Sequence[Endpoint] = ()
    queue: str | None = None
    tasks: Sequence[Callable[[], Awaitable[None]]] = ()
    ready: Callable[[], Awaitable[None]] | None = None


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A system's service: its settings, how it is assembled, and the tokens it accepts.

    `settings` is the Struct of its settings table, checked before anything is opened. `build` assembles the service.
    `tenant_pattern` matches the tenants that a token may name; `scopes` are those that a tenant's token may have, and
    `operator_scopes` those of an operator's. A service without either has no such tokens.
    """

    settings: type[msgspec.Struct]
    build: Callable[[ServiceContext], ServiceSpec]
    tenant_pattern: str = TENANT_PATTERN
    scopes: tuple[str, ...] = ()
    operator_scopes: tuple[str, ...] = ()
