"""The service's NATS: the embedded server is started, or the given one connected, when a part of
the service first needs it. It is stopped after everything that was started later.

An engine may need it (`nats:`), and so may endpoints and the bus. Engines are opened while the
services are built, so that is when the server is started for them.

The embedded server is a child process on loopback, with its files in the data folder. It is
restarted if it exits. It must be started from the main thread, and lives as long as that.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final, Protocol

import msgspec
import structlog

from keyhouse.errors import KeyhouseError, UnavailableError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.embedded_users import EmbeddedUsers
from keyhouse.nats.endpoint import Endpoint
from keyhouse.nats.limits import NATS_PARTITIONS
from keyhouse.nats.server import NatsServer
from keyhouse.serve.data_dir import DataDir
from keyhouse.service.worker import ALONE, Worker
from keyhouse.settings.engine_urls import with_server
from keyhouse.settings.settings import EMBEDDED, OFF, ServerSettings

_log = structlog.get_logger("keyhouse.serve")


class NatsAddresses(msgspec.Struct, frozen=True, tag=True):
    """The URLs of the embedded server for its users, with their passwords."""

    url: str
    listener_url: str
    monitor: str | None


class NatsOwner(Protocol):
    """Runs the embedded server: this process (`OwnNats`), or its parent."""

    async def start_nats(self, *, jetstream: bool) -> NatsAddresses:
        """Start the server unless it runs; restart it if it lacks JetStream."""
        ...

    async def set_public(self, subjects: Sequence[str], mappings: Mapping[str, str]) -> None:
        """Let clients call the public endpoints, and map their subjects: now, or once it runs."""
        ...


class NatsAccess:
    """`credentials` are nats-py's options. `owner` runs the embedded server. `stack` closes the
    connections.

    A worker reads the partitions whose number, modulo the count of workers, is its own: a tenant
    stays in one worker.
    """

    def __init__(
        self,
        settings: ServerSettings,
        credentials: dict[str, Any],
        owner: NatsOwner,
        stack: AsyncExitStack,
        worker: Worker = ALONE,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._owner = owner
        self._stack = stack
        self._embedded: NatsAddresses | None = None
        self._client: NatsClient | None = None
        self._public_client: NatsClient | None = None
        self.own_partitions = range(worker.number, NATS_PARTITIONS, worker.count)

    @property
    def is_off(self) -> bool:
        return self._settings.nats == OFF

    @property
    def url(self) -> str | None:
        """The address, or None if nothing needed NATS so far."""
        if self._embedded is not None:
            return self._embedded.url
        return None if self._client is None else self._settings.nats

    async def start(self, *, jetstream: bool = False) -> str:
        """Start the embedded server unless it runs, and return the address of NATS."""
        if self._settings.nats != EMBEDDED:
            return self._settings.nats
        if self._embedded is None or jetstream:
            self._embedded = await self._owner.start_nats(jetstream=jetstream)
        return self._embedded.url

    async def client(self) -> NatsClient:
        """Return the connection, which is made at the first call."""
        if self._client is None:
            url = await self.start()
            self._client = await self._stack.enter_async_context(connect(url, **self._credentials))
        return self._client

    async def listener_client(self, *, public: bool) -> NatsClient:
        """Return the connection for endpoints that are public, or not. The embedded server keeps
        the clients of the two apart; on other servers it is the same connection."""
        if not public or self._settings.nats != EMBEDDED:
            return await self.client()
        if self._public_client is None:
            self._public_client = await self._open("keyhouse-public", public=True)
        return self._public_client

    async def push_client(self, *, public: bool) -> NatsClient:
        """Open a further connection, for messages that must not delay replies."""
        return await self._open("keyhouse-pushes", public=public)

    async def _open(self, name: str, *, public: bool) -> NatsClient:
        url = await self.start()
        if public and self._embedded is not None:
            url = self._embedded.listener_url
        opening = connect(url, name=name, is_further=True, **self._credentials)
        return await self._stack.enter_async_context(opening)

    async def partitions(self, endpoints: Iterable[Endpoint]) -> dict[int, NatsClient]:
        """Let clients of the embedded server call the public endpoints, and open the connections of
        this worker's partitions, if some have them and the settings allow it."""
        public = [each for each in endpoints if each.public]
        mappings: dict[str, str] = {}
        if self._settings.has_nats_partitions:
            mappings = dict(each.mapping for each in public if each.partition_by is not None)
        if self._settings.nats == EMBEDDED:
            subjects = [subject for each in public for subject in each.subjects]
            await self._owner.set_public(subjects, mappings)
        if not mappings:
            return {}
        await self.start()  # once, not by each of them
        opening = (self._open(f"keyhouse-{each}", public=True) for each in self.own_partitions)
        opened = await asyncio.gather(*opening, return_exceptions=True)
        for each in opened:
            if isinstance(each, BaseException):
                raise each
        clients = (each for each in opened if isinstance(each, NatsClient))
        return dict(zip(self.own_partitions, clients, strict=True))

    async def engine_url(self, url: str) -> str:
        """Return the URL of an engine on the service's own server (`nats:`), started if need be.

        The embedded server has JetStream from then on, and syncs every commit, which the engine
        verifies when it is opened if there is a monitoring port.
        """
        if self.is_off:
            raise UsageError(
                "The rows are on the service's NATS server, which is off: remove --nats off, or set"
                " another engine.",
                engine=url,
            )
        servers = await self.start(jetstream=True)
        if self._embedded is not None:
            monitor = self._embedded.monitor
            shown = {} if monitor is None else {"monitor": monitor}
            return with_server(url, servers, sync="always", **shown)
        file = self._settings.nats_credentials
        return with_server(url, servers, **({"credentials": file} if file else {}))


# The embedded server

FOLDER: Final = "nats"
CHECK_SECONDS: Final = 0.5
"""Interval of the checks that the server runs."""

LEAVE_SECONDS: Final = 0.1
"""Time in which clients learn that no service responds any more, before the server stops. A request
that is on its way when the server stops has no reply at all."""

_ATTEMPTS: Final = 3


class EmbeddedNats(NatsServer):
    """A server that is restarted if it exits; `restarting` is held while it stops, starts or
    reloads."""

    users: EmbeddedUsers

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.restarting = asyncio.Lock()

    @property
    def addresses(self) -> NatsAddresses:
        return NatsAddresses(self.url, self.listener_url, self.monitor)


class OwnNats:
    """The embedded server of a process that serves alone; `stack` stops it."""

    def __init__(self, settings: ServerSettings, data: DataDir, stack: AsyncExitStack) -> None:
        self._start = partial(embedded_nats, data, **_options(settings))
        self._stack = stack
        self._server: EmbeddedNats | None = None
        self._public: tuple[Sequence[str], Mapping[str, str]] = ((), {})

    async def start_nats(self, *, jetstream: bool) -> NatsAddresses:
        if self._server is None:
            subjects, mappings = self._public
            running = self._start(jetstream=jetstream, subjects=subjects, mappings=mappings)
            self._server = await self._stack.enter_async_context(running)
        elif jetstream:
            await enable_jetstream(self._server)
        return self._server.addresses

    async def set_public(self, subjects: Sequence[str], mappings: Mapping[str, str]) -> None:
        self._public = subjects, mappings
        if self._server is not None:
            await set_public(self._server, subjects, mappings)


class SharedNats:
    """The embedded server of a process whose workers serve. That process has an event loop, and
    threads, only while a method runs; then it can be forked. `check` is called every
    CHECK_SECONDS."""

    def __init__(self, settings: ServerSettings, data: DataDir) -> None:
        self._start = partial(start_embedded, data, **_options(settings))
        self._public: tuple[Sequence[str], Mapping[str, str]] = ((), {})
        self.server: EmbeddedNats | None = None

    def start_nats(self, *, jetstream: bool) -> NatsAddresses:
        if self.server is None:
            subjects, mappings = self._public
            starting = self._start(jetstream=jetstream, subjects=subjects, mappings=mappings)
            self.server = asyncio.run(starting)
        elif jetstream:
            asyncio.run(enable_jetstream(self.server))
        return self.server.addresses

    def set_public(self, subjects: Sequence[str], mappings: Mapping[str, str]) -> None:
        """Reload the server for the first worker; the others have the same endpoints."""
        if self.server is not None and self._public != (subjects, mappings):
            asyncio.run(set_public(self.server, subjects, mappings))
        self._public = subjects, mappings

    def check(self) -> None:
        if self.server is not None:
            asyncio.run(_check(self.server))

    def stop(self) -> None:
        if self.server is not None:
            time.sleep(LEAVE_SECONDS)
            self.server.stop()


def _options(settings: ServerSettings) -> dict[str, Any]:
    return {
        "port": settings.nats_port,
        "monitor_port": settings.nats_monitor_port,
        "require_password": settings.nats_auth,
    }


@asynccontextmanager
async def embedded_nats(data: DataDir, port: int, **options: Any) -> AsyncIterator[EmbeddedNats]:
    """Run a server until the block ends, with the options of `start_embedded`."""
    server = await start_embedded(data, port, **options)
    watching = asyncio.create_task(_watch(server))
    try:
        yield server
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.sleep(LEAVE_SECONDS)
        await asyncio.to_thread(server.stop)


async def start_embedded(
    data: DataDir,
    port: int,
    *,
    jetstream: bool = False,
    monitor_port: int = 0,
    require_password: bool = False,
    mappings: Mapping[str, str] | None = None,
    subjects: Iterable[str] = (),
) -> EmbeddedNats:
    """Start a server. Raises UsageError if the port is in use. `subjects` are those of public
    endpoints."""
    users = EmbeddedUsers(data.path, require_password=require_password)
    users.subjects = subjects
    make = partial(
        EmbeddedNats,
        data.path / FOLDER,
        holds=(data.lock,),
        jetstream=jetstream,
        monitor_port=monitor_port,
        users=users,
        mappings=mappings,
    )
    return await _started(make, port)


async def enable_jetstream(server: EmbeddedNats) -> None:
    """Restart a server with JetStream, unless it has it: an engine needs it. Clients reconnect."""
    async with server.restarting:
        if not server.jetstream:
            server.jetstream = True
            await asyncio.to_thread(server.stop)
            server.start()
            await asyncio.to_thread(server.ready)


async def set_public(
    server: EmbeddedNats, subjects: Iterable[str], mappings: Mapping[str, str]
) -> None:
    """Let clients call the public endpoints, and map their subjects, also after a restart."""
    async with server.restarting:
        server.mappings = mappings
        server.users.subjects = subjects
        await asyncio.to_thread(server.reload)


async def _started(make: Callable[..., EmbeddedNats], port: int) -> EmbeddedNats:
    """Start a server. Without a fixed port, try others: a free one can be taken before it binds."""
    for attempts_left in reversed(range(1 if port else _ATTEMPTS)):
        if port and _is_taken(port):
            raise UsageError(
                "The port for NATS is in use: choose another with --nats-port (0 is any), or "
                "connect to the server there with --nats.",
                port=port,
            )
        server = make(port=port or None)
        server.start()
        try:
            await asyncio.to_thread(server.ready)
            return server
        except UnavailableError:
            server.kill()
            if not attempts_left:
                raise
    raise AssertionError("unreachable")


async def _watch(server: EmbeddedNats) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        await _check(server)


async def _check(server: EmbeddedNats) -> None:
    async with server.restarting:
        if server.process_id is None:
            _start_again(server)
        elif server.users.has_changed():
            await _reload_users(server)


async def _reload_users(server: EmbeddedNats) -> None:
    try:
        await asyncio.to_thread(server.reload)
    except (KeyhouseError, OSError) as error:  # such as a full disk
        _log.error("nats users were not reloaded", error=str(error))


def _start_again(server: EmbeddedNats) -> None:
    log = str(server.folder / "nats-server.log")
    _log.error("nats server exited: restarting it", status=server.exit_status, log=log)
    try:
        server.start()
    except (KeyhouseError, OSError, SubprocessError) as error:  # such as a full disk
        _log.error(
            "nats server could not be restarted",
            reason=str(error),
            retry_in_seconds=CHECK_SECONDS,
        )


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False
