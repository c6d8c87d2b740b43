"""The server: opens engines, builds services, runs the listeners, and shuts down in order.

It knows no system, only the specs that they return. Engines are opened one after the other; NATS is
started before the first engine that is on it, else after all of them. Shutdown is the reverse of
startup: the listeners stop accepting and drain their requests, then background tasks are cancelled,
then blocking calls end, then NATS and the engines are closed, and last the lock of the data folder
is released.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from socket import socket
from typing import Any, Final, Self

import msgspec
import structlog

from keyhouse import __version__
from keyhouse.advice.install import install_line
from keyhouse.engine import Engine
from keyhouse.engines.registry import public_url
from keyhouse.errors import KeyhouseError, UnavailableError, UsageError
from keyhouse.http import HttpSettings, make_app
from keyhouse.nats.bus import Bus
from keyhouse.nats.client import NatsClient
from keyhouse.nats.credentials import sign_in
from keyhouse.nats.endpoint import Endpoint
from keyhouse.nats.errors import reconnecting
from keyhouse.nats.listener import NatsListener
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.engine_opener import EngineOpener, Tracer
from keyhouse.serve.health import Health, health_routes
from keyhouse.serve.listener import bind, listening
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.nats_access import NatsAccess, OwnNats
from keyhouse.serve.own_pages import PAGES, check_pages, page_routes
from keyhouse.serve.parent import Parent
from keyhouse.serve.peers import Peers
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.host import ServiceHost
from keyhouse.service.limit_table import LimitTable
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.service.worker import ALONE
from keyhouse.settings.parser import read_settings
from keyhouse.settings.settings import OFF, Address
from keyhouse.settings.sources import STUDIO, LoadedSettings
from keyhouse.studio import Studio, StudioSettings, StudioSystem, SystemCatalog

NATS_PING_SECONDS: Final = 2.0
"""Timeout of the round trip to NATS in a readiness check."""

RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 60.0
"""Backoff before a failed background task is restarted: doubled each time, up to this."""

_OTLP_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_log = structlog.get_logger("keyhouse.serve")

Build = Callable[[ServiceContext], ServiceSpec | Awaitable[ServiceSpec]]


class Addresses(msgspec.Struct, frozen=True):
    """The URLs of the service. None: that listener is off. `studio` signs an operator in, once;
    `pages` is the folder of the operator's own pages."""

    http: str | None
    nats: str | None
    studio: str | None = None
    pages: str | None = None


class Server:
    """Serves until the block ends: `async with Server(loaded, services) as addresses: …`.

    Raises KeyhouseError if startup fails; everything already started is stopped.
    """

    def __init__(
        self, loaded: LoadedSettings, services: Mapping[str, Build], parent: Parent | None = None
    ) -> None:
        self._parent = parent
        self._worker = ALONE if parent is None else parent.worker
        self._peers: Peers | None = None
        self._table: LimitTable | None = None
        self.linger_seconds = 0.0
        self._loaded = loaded
        self._settings = loaded.settings
        self._services = services
        self._metrics = Metrics(__version__)
        self._health = Health(self._metrics)
        self._stack = AsyncExitStack()
        self._opener: EngineOpener | None = None
        self._listeners: list[AsyncExitStack] = []
        self._tracing: Tracer | None = None
        self._blocking = BlockingPool()
        self._bus = Bus()
        self._studio: Studio | None = None
        self._pages: Path | None = None
        self._metrics.registry.register(self._blocking)
        self._metrics.registry.register(self._bus)

    async def __aenter__(self) -> Addresses:
        async with AsyncExitStack() as starting:
            addresses = await self._start(starting)
            self._stack = starting.pop_all()
        return addresses

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def wait_loaded(self) -> None:
        """Wait until every engine answers reads: one on JetStream loads its keys first."""
        if self._opener is not None:
            await self._opener.wait_loaded()

    async def _start(self, stack: AsyncExitStack) -> Addresses:
        http_settings, credentials = self.read_settings()
        if self._parent is None:
            data = DataDir.take(Path(self._settings.data))
            stack.callback(data.release)
            address = self._settings.http_address
            bound = None if address is None else stack.enter_context(bind(address))
        else:
            data, bound = self._parent.data, self._parent.bound
            name = f"{self._worker.number}-{self._parent.serial}"
            self._peers = Peers(data.path, name, self._metrics, self._health)
            await stack.enter_async_context(self._peers.counted())
        if data.is_open_to_others:
            _log.warning("other users can read the data folder: chmod 700 it", data=str(data.path))
        self._tracing = _open_tracing(self._settings.otlp_endpoint)
        if self._tracing is not None:
            stack.push_async_callback(self._tracing.close)
        owner = self._parent or OwnNats(self._settings, data, stack)
        nats = NatsAccess(self._settings, credentials, owner, stack, self._worker)
        opener = EngineOpener(
            self._loaded, self._metrics, self._health, nats, self._tracing, stack, self._worker
        )
        self._opener = opener
        if self._worker.count > 1:
            self._table = LimitTable.open(data.path, self._worker.count)
            stack.callback(self._table.close)
        hosts = {name: self._host(name, opener) for name in self._services}
        specs = [await self._build(name, data.path, opener, hosts[name]) for name in self._services]
        if bound is not None:
            specs += await self._build_studio(specs, data.path, opener, has_docs=http_settings.docs)
        nats_listeners = await self._connect(nats, specs[: len(hosts)], hosts)
        stack.push_async_callback(self._blocking.close, self._settings.drain_seconds)
        await stack.enter_async_context(BackgroundTasks(specs, self._metrics))
        stack.push_async_callback(self._stop_listeners)
        if self._parent is not None and self._parent.others_serve:
            await self.wait_loaded()  # requests are theirs until then
        for listener in nats_listeners:
            await self._start_listener(listener)
        http = None
        if bound is not None:
            http = (await self._start_listener(self.http_listener(specs, bound, http_settings))).url
        if self._peers is not None:
            await stack.enter_async_context(self._peers.listening())
        studio = None
        if http is not None and self._studio is not None:
            link = await self._studio.sessions.new_link()
            studio = f"{http}{http_settings.root_path}/studio/login?link={link}"
        pages = None if self._pages is None else f"{http}{http_settings.root_path}{PAGES}/"
        return Addresses(http, None if nats.url is None else public_url(nats.url), studio, pages)

    def read_settings(self) -> tuple[HttpSettings, dict[str, Any]]:
        """Return the HTTP settings and nats-py's options for credentials.

        Invalid ones raise before anything is opened.
        """
        given = {"drain_seconds": self._settings.drain_seconds, **self._loaded.http}
        if self._settings.pages is not None:
            self._pages = check_pages(self._settings.pages, self._settings.data)
        file = self._settings.nats_credentials if self._settings.nats != OFF else None
        http = read_settings(HttpSettings, given, table="http")
        return http, sign_in(file) if file else {}

    # Services

    def _host(self, system: str, opener: EngineOpener) -> ServiceHost:
        async def open(url: str, name: str) -> Engine:
            return await opener.open(url, system, f"{system}.{name}")

        return ServiceHost(
            opener=open,
            blocking=self._blocking,
            bus=self._bus,
            worker=self._worker,
            table=self._table,
            shares_engines=not self._loaded.has_own_file(system),
        )

    async def _build(
        self, name: str, data: Path, opener: EngineOpener, host: ServiceHost
    ) -> ServiceSpec:
        engine = await opener.open_own(name, alone=len(self._services) == 1)
        context = ServiceContext(
            engine=engine,
            data=data,
            metrics=self._metrics.registry,
            settings=self._loaded.tables.get(name, {}),
            name=name,
            host=host,
        )
        try:
            built = self._services[name](context)
            spec = _checked(await built if inspect.isawaitable(built) else built, name)
        except KeyhouseError as error:
            if not {"setting", "table"} & error.fields.keys():
                error.fields["system"] = name
            raise
        if spec.ready is not None:
            self._health.add(name, spec.ready)
        if spec.figures is not None:
            self._metrics.operated(name, spec.figures)
        return spec if self._tracing is None else self._tracing.service(spec)

    async def _build_studio(
        self, specs: list[ServiceSpec], data: Path, opener: EngineOpener, *, has_docs: bool
    ) -> list[ServiceSpec]:
        """Return the service of the Studio, over the keyspaces of the others; nothing if it is
        off."""
        settings = read_settings(StudioSettings, self._loaded.tables.get(STUDIO, {}), table=STUDIO)
        alone = len(self._services) == 1
        systems = [
            StudioSystem(
                name=spec.name,
                title=spec.title,
                about=spec.about,
                engine=public_url(self._loaded.engine_url(name, alone=alone)),
                keyspaces=spec.keyspaces,
                figures=spec.figures,
                docs=f"/{spec.name}/docs" if has_docs and spec.routes else "",
            )
            for name, spec in zip(self._services, specs, strict=True)
            if spec.keyspaces
        ]
        if not settings.enabled or not systems:
            return []
        engine = await opener.open(self._loaded.studio_url(), STUDIO, STUDIO, is_required=False)
        self._studio = Studio(
            SystemCatalog(systems),
            engine,
            data,
            settings,
            (self._peers or self._health).readiness,
            host=self._host(STUDIO, opener),
        )
        return [self._studio.spec()]

    async def _connect(
        self, nats: NatsAccess, specs: list[ServiceSpec], hosts: Mapping[str, ServiceHost]
    ) -> list[NatsListener]:
        """Connect to NATS if a service has endpoints or uses the bus. Returns the listeners, on
        connections that are closed after them."""
        users = [
            spec.name
            for name, spec in zip(hosts, specs, strict=True)
            if spec.endpoints or hosts[name].uses_bus
        ]
        if users and nats.is_off:
            _log.warning("nats is off: these systems are not served there", systems=users)
        if not users or nats.is_off:
            return []
        partitions = await nats.partitions(each for spec in specs for each in spec.endpoints)
        self._bus.connect(await nats.client())
        return [
            await self._nats_listener(nats, spec, endpoints, partitions, public=public)
            for spec in specs
            for public in (True, False)
            if (endpoints := [each for each in spec.endpoints if each.public is public])
        ]

    # Listeners

    async def _nats_listener(
        self,
        nats: NatsAccess,
        spec: ServiceSpec,
        endpoints: list[Endpoint],
        partitions: dict[int, NatsClient],
        *,
        public: bool,
    ) -> NatsListener:
        client = await nats.listener_client(public=public)
        further = partitions if public else {}
        self._health.add(spec.name, nats_check(client, [*further.values()]), first=True)
        return NatsListener(
            client,
            endpoints,
            name=spec.name,
            version=__version__,
            description=spec.title,
            queue=spec.queue,
            push_client=await nats.push_client(public=public),
            partitions=further or dict.fromkeys(nats.own_partitions, client),
            replies=self._bus.replies,
        )

    def http_listener(
        self, specs: list[ServiceSpec], bound: socket, settings: HttpSettings
    ) -> AbstractAsyncContextManager[Address]:
        routes = [*health_routes(self._health, self._metrics, self._peers)]
        if self._pages is not None:
            routes += page_routes(self._pages, self._blocking.run)
        table = self._table
        app = make_app(
            specs,
            settings=settings,
            registry=self._metrics.registry,
            routes=routes,
            workers=self._worker.count,
            slots=lambda kind: None if table is None else table.slots(kind),
        )
        if self._studio is not None:
            self._studio.show_requests(app.metrics)
        return listening(
            app if self._tracing is None else self._tracing.app(app),
            bound,
            drain_seconds=min(settings.drain_seconds, self._settings.drain_seconds),
            header_timeout_seconds=settings.header_timeout_seconds,
            write_timeout_seconds=settings.write_timeout_seconds,
            reject=app.reject,
            stopping=app.end_streams,
            linger_seconds=lambda: self.linger_seconds,
            share=None if self._parent is None else self._parent.share,
            root_path=settings.root_path,
        )

    async def _start_listener(self, listener: AbstractAsyncContextManager[Any]) -> Any:
        stack = AsyncExitStack()
        started = await stack.enter_async_context(listener)
        self._listeners.append(stack)
        return started

    async def _stop_listeners(self) -> None:
        """Stop all listeners concurrently, within the time that requests have to finish."""
        listeners, self._listeners = self._listeners, []
        stopping = [asyncio.create_task(listener.aclose()) for listener in listeners]
        if not stopping:
            return
        seconds = self._settings.drain_seconds + self.linger_seconds + 1
        _, late = await asyncio.wait(stopping, timeout=seconds)
        if late:
            _log.warning("requests aborted", listeners=len(late))
            for task in late:
                task.cancel()
        for result in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("listener shutdown failed", exc_info=result)


class BackgroundTasks:
    """Runs the tasks of all services until the block ends; then cancels and awaits them.

    A task that fails is logged and restarted after a backoff; one that returns is done.
    """

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        metrics: Metrics,
        *,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        self._specs = specs
        self._metrics = metrics
        self._restart_seconds = restart_seconds
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._running = [
            asyncio.create_task(self._run(spec.name, task))
            for spec in self._specs
            for task in spec.tasks
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, system: str, task: Callable[[], Awaitable[None]]) -> None:
        backoff = self._restart_seconds
        failures = self._metrics.task_failures.labels(system)  # 0, not absent, until one fails
        while True:
            try:
                return await task()
            except KeyhouseError as error:
                _log.error("task failed", system=system, error=str(error), retry_in_seconds=backoff)
            except Exception:
                _log.exception("task failed", system=system, retry_in_seconds=backoff)
            failures.inc()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, RESTART_SECONDS_MAX)


def _open_tracing(endpoint: str | None) -> Tracer | None:
    """Return the tracing if a collector is configured. ImportError names the extra it needs."""
    if endpoint is None and not any(os.environ.get(name) for name in _OTLP_VARIABLES):
        return None
    try:
        from keyhouse.serve.tracing import Tracing
    except ModuleNotFoundError as error:
        raise ImportError(f"Tracing needs {error.name}: {install_line('traces')}") from error
    return Tracing(endpoint, __version__)


def _checked(spec: Any, name: str) -> ServiceSpec:
    """Check what a function outside this project has returned."""
    if isinstance(spec, ServiceSpec):
        return spec
    raise UsageError(
        "A service must be a function that returns a ServiceSpec.",
        system=name,
        returned=type(spec).__name__,
    )


def nats_check(
    client: NatsClient, partitions: Sequence[NatsClient] = ()
) -> Callable[[], Awaitable[None]]:
    """A round trip over the main connection. A partition's would wait for a tenant's flood: its
    client pings by itself, and is disconnected without an answer."""
    clients = (client, *partitions)

    async def check() -> None:
        for each in clients:
            if not each.is_connected:
                raise reconnecting(each.last_error)
        if not all(each.is_reading for each in clients):
            raise UnavailableError(
                "The NATS connection is no longer read: see the log, and restart the service."
            )
        try:
            await client.flush(timeout=NATS_PING_SECONDS)  # type: ignore[arg-type]  # any number
        except TimeoutError:
            raise UnavailableError("The NATS server does not answer.") from None

    return check
