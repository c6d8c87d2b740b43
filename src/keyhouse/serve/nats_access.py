"""The service's NATS: the embedded server is started, or the given one connected, when a part of
the service first needs it. It is stopped after everything that was started later.

An engine may need it (`nats:`), and so may endpoints and the bus. Engines are opened while the
services are built, so that is when the server is started for them.

The embedded server is a child process on loopback, with its files in the data folder. It is
restarted if it exits. It must be started from the main thread, and lives as long as that.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final

import structlog

from keyhouse.errors import KeyhouseError, UnavailableError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.embedded_users import EmbeddedUsers
from keyhouse.nats.endpoint import Endpoint
from keyhouse.nats.limits import NATS_PARTITIONS
from keyhouse.nats.server import NatsServer
from keyhouse.serve.data_dir import DataDir
from keyhouse.settings.engine_urls import with_server
from keyhouse.settings.settings import EMBEDDED, OFF, ServerSettings

_log = structlog.get_logger("keyhouse.serve")


class NatsAccess:
    """`credentials` are nats-py's options. `stack` stops what is started here."""

    def __init__(
        self,
        settings: ServerSettings,
        credentials: dict[str, Any],
        data: DataDir,
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._data = data
        self._stack = stack
        self._embedded: EmbeddedNats | None = None
        self._client: NatsClient | None = None
        self._public_client: NatsClient | None = None
        self._mappings: dict[str, str] = {}
        self._subjects: list[str] = []

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
        settings = self._settings
        if settings.nats != EMBEDDED:
            return settings.nats
        if self._embedded is None:
            self._embedded = await self._stack.enter_async_context(
                embedded_nats(
                    self._data,
                    settings.nats_port,
                    jetstream=jetstream,
                    monitor_port=settings.nats_monitor_port,
                    require_password=settings.nats_auth,
                    mappings=self._mappings,
                    subjects=self._subjects,
                )
            )
        elif jetstream:
            await enable_jetstream(self._embedded)
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

    async def partitions(self, endpoints: Iterable[Endpoint]) -> list[NatsClient]:
        """Let clients of the embedded server call the public endpoints, and open the connections of
        their partitions, if some have them and the settings allow it."""
        public = [each for each in endpoints if each.public]
        self._subjects = [subject for each in public for subject in each.subjects]
        if self._settings.has_nats_partitions:
            self._mappings = dict(each.mapping for each in public if each.partition_by is not None)
        if self._embedded is not None:
            await set_public(self._embedded, self._subjects, self._mappings)
        if not self._mappings:
            return []
        await self.start()  # once, not by each of them
        names = (f"keyhouse-{number}" for number in range(NATS_PARTITIONS))
        opening = (self._open(name, public=True) for name in names)
        opened = await asyncio.gather(*opening, return_exceptions=True)
        for each in opened:
            if isinstance(each, BaseException):
                raise each
        return [each for each in opened if isinstance(each, NatsClient)]

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


@asynccontextmanager
async def embedded_nats(
    data: DataDir,
    port: int,
    *,
    jetstream: bool = False,
    monitor_port: int = 0,
    require_password: bool = False,
    mappings: Mapping[str, str] | None = None,
    subjects: Iterable[str] = (),
) -> AsyncIterator[EmbeddedNats]:
    """Run a server until the block ends. Raises UsageError if the port is in use. `subjects` are
    those of public endpoints."""
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
    server = await _started(make, port)
    watching = asyncio.create_task(_restart(server))
    try:
        yield server
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.sleep(LEAVE_SECONDS)
        await asyncio.to_thread(server.stop)


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


async def _restart(server: EmbeddedNats) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
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
