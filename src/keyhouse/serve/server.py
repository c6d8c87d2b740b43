"""The host: opens the engines, asks each system for its part, runs the faces, and ends in order.

It knows no system, only what they hand in. What was begun is ended in the opposite order: first the faces take nothing more
and finish what they have, then tasks end, then NATS, then engines are closed, and last the data folder is let go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from socket import socket
from typing import Any, Final

import msgspec
import structlog

from keyhouse import __version__, open_engine
from keyhouse.engine import Engine
from keyhouse.engines.registry import public_url
from keyhouse.engines.system_urls import file_of, make_folder, url_of
from keyhouse.errors import KeyhouseError, UnavailableError, UsageError
from keyhouse.http import HttpSettings, make_app
from keyhouse.metrics import Metrics
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.credentials import sign_in
from keyhouse.nats.listener import NatsListener
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.embedded_nats import embedded_nats
from keyhouse.serve.health import Health
from keyhouse.serve.health_routes import health_routes
from keyhouse.serve.listener import bind, listening
from keyhouse.serve.tasks import Tasks
from keyhouse.serve.tracing import Tracing, tracing
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings.parser import read_settings
from keyhouse.settings.settings import EMBEDDED, OFF, Address
from keyhouse.settings.sources import LoadedSettings

ENGINE_SECONDS: Final = 15.0
"""How long an engine may take to open: it may have tables to make."""

PROBE: Final = ("keyhouse-ready", ("ready",))
"""A row that is never written: an engine that says it is not there answers."""

_log = structlog.get_logger("keyhouse.serve")

Service = Callable[[ServiceContext], ServiceSpec]


class Addresses(msgspec.Struct, frozen=True):
    """Where the service is reached. `None`: not by that face."""

    http: str | None
    nats: str | None


class Server:
    """`async with Host(given, services) as place: …` serves until the block ends. What can't be is a KeyhouseError, and
    then nothing is left of what had begun."""

    def __init__(self, given: LoadedSettings, services: Mapping[str, Service]) -> None:
        self._given = given
        self._settings = given.settings
        self._services = services
        self._metrics = Metrics(__version__)
        self._health = Health(self._metrics)
        self._stack = AsyncExitStack()
        self._faces: list[AsyncExitStack] = []
        self._traces: Tracing | None = None

    async def __aenter__(self) -> Addresses:
        async with AsyncExitStack() as starting:
            place = await self._start(starting)
            self._stack = starting.pop_all()
        return place

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> Addresses:
        http_settings, signing = self._read_settings()
        data = DataDir.take(Path(self._settings.data))
        stack.callback(data.release)
        if data.is_open_to_others:
            _log.warning(
                "others on this machine can look into the data folder: chmod 700 it",
                data=str(data.path),
            )
        address = self._settings.http_address
        bound = None if address is None else stack.enter_context(bind(address))
        self._traces = tracing(self._settings.otlp_endpoint)
        if self._traces is not None:
            stack.push_async_callback(self._traces.close)
        parts = [await self._part(name, data.path, stack) for name in self._services]
        nats = await self._nats_url(parts, data, stack)
        connection = (
            None if nats is None else await stack.enter_async_context(connect(nats, **signing))
        )
        await stack.enter_async_context(Tasks(parts, self._metrics))
        stack.push_async_callback(self._end_faces)
        for part in parts:
            if connection is not None and part.endpoints:
                await self._begin_face(
                    NatsListener(
                        connection,
                        part.endpoints,
                        name=part.name,
                        version=__version__,
                        description=part.title,
                        queue=part.queue,
                    )
                )
                self._health.add(part.name, _connected(connection))
        http = None
        if bound is not None:
            http = (await self._begin_face(self._listener(parts, bound, http_settings))).url
        return Addresses(http, None if nats is None else public_url(nats))

    def _read_settings(self) -> tuple[HttpSettings, dict[str, Any]]:
        """Of the HTTP face, and how NATS is signed in to: what can't be is said before anything is opened."""
        given = {"drain_seconds": self._settings.drain_seconds, **self._given.http}
        credentials = self._settings.nats_credentials if self._settings.nats != OFF else None
        return read_settings(HttpSettings, given, table="http"), sign_in(
            credentials
        ) if credentials else {}

    # The systems

    async def _part(self, name: str, data: Path, stack: AsyncExitStack) -> ServiceSpec:
        opened = await self._engine(name, data, stack)
        traces = self._traces
        engine = self._metrics.metered(
            name, opened if traces is None else traces.engine(name, opened)
        )
        settings = self._given.tables.get(name, {})
        context = ServiceContext(
            engine=engine, data=data, metrics=self._metrics.registry, settings=settings
        )
        part = _checked(self._services[name](context), name)
        self._health.add(name, lambda: engine.read(*PROBE), *([part.ready] if part.ready else []))
        return part if traces is None else traces.part(part)

    async def _engine(self, name: str, data: Path, stack: AsyncExitStack) -> Engine:
        own, common = self._given.engines.get(name), self._settings.engine
        url = own or common
        place = (
            file_of(name, data)
            if url is None
            else url_of(name, url, alone=bool(own) or len(self._services) == 1)
        )
        if url is not None:
            make_folder(url)
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                engine = await open_engine(place)
        except KeyhouseError as error:
            error.fields["system"] = name
            if (
                source := self._given.sources.get(f"{name}.engine" if own else "engine")
            ) is not None:
                error.fields["source"] = source
            raise
        except TimeoutError:
            raise UnavailableError(
                "The engine does not answer: look at it, or name another with --engine.",
                engine=public_url(place),
                system=name,
            ) from None
        stack.push_async_callback(engine.close)
        durable = engine.capabilities.durable
        _log.info("engine open", system=name, engine=public_url(place), durable=durable)
        if not durable:
            _log.warning(
                "what is acknowledged here can be lost with the machine: keyhouse doctor says why",
                system=name,
            )
        return engine

    # The faces

    async def _nats_url(
        self, parts: list[ServiceSpec], data: DataDir, stack: AsyncExitStack
    ) -> str | None:
        """Where NATS is, if anything is answered there; our own server is started only for that."""
        asked = [part.name for part in parts if part.endpoints]
        if not asked or self._settings.nats == OFF:
            if asked:
                _log.warning("nats is off, and these systems are not answered there", systems=asked)
            return None
        if self._settings.nats != EMBEDDED:
            return self._settings.nats
        return (await stack.enter_async_context(embedded_nats(data, self._settings.nats_port))).url

    def _listener(
        self, parts: list[ServiceSpec], bound: socket, settings: HttpSettings
    ) -> AbstractAsyncContextManager[Address]:
        routes = health_routes(self._health, self._metrics)
        app = make_app(parts, settings=settings, registry=self._metrics.registry, routes=routes)
        return listening(
            app if self._traces is None else self._traces.app(app),
            bound,
            drain_seconds=min(settings.drain_seconds, self._settings.drain_seconds),
            head_seconds_max=settings.head_seconds_max,
            stall_seconds_max=settings.stall_seconds_max,
            refused=app.metrics.refuse,
        )

    async def _begin_face(self, face: AbstractAsyncContextManager[Any]) -> Any:
        stack = AsyncExitStack()
        begun = await stack.enter_async_context(face)
        self._faces.append(stack)
        return begun

    async def _end_faces(self) -> None:
        """All at once, each in its own time, none longer than may be."""
        faces, self._faces = self._faces, []
        ending = [asyncio.create_task(face.aclose()) for face in faces]
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=self._settings.drain_seconds + 1)
        if late:
            _log.warning("requests were cut off", faces=len(late))
            for task in late:
                task.cancel()
        for result in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("a face did not end well", exc_info=result)


def _checked(part: Any, name: str) -> ServiceSpec:
    """What a function of somebody else's returned."""
    if isinstance(part, ServiceSpec):
        return part
    if isinstance(part, Coroutine):
        part.close()
    raise UsageError(
        "What is served is a plain function that returns a Part.",
        system=name,
        returned=type(part).__name__,
    )


def _connected(connection: NatsClient) -> Callable[[], Awaitable[None]]:
    async def check() -> None:
        if not connection.is_connected:
            raise UnavailableError("The connection to NATS is lost; it is tried again and again.")
        if not connection.is_reading:
            raise UnavailableError(
                "What comes over NATS is no longer read: the log says why; start the service again."
            )

    return check
