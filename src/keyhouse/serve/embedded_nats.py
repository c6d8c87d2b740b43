"""The embedded nats-server: a child process on loopback, with its files in the data folder.

It is restarted if it exits. It must be started from the main thread, and lives as long as that.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final

import structlog

from keyhouse.errors import UnavailableError, UsageError
from keyhouse.nats.server import NatsServer
from keyhouse.serve.data_dir import DataDir

FOLDER: Final = "nats"
CHECK_SECONDS: Final = 0.5
"""Interval of the checks that the server runs."""

_ATTEMPTS: Final = 3
_log = structlog.get_logger("keyhouse.serve")


class EmbeddedNats(NatsServer):
    """A server that is restarted if it exits; `restarting` is held while it stops or starts."""

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
    password: str | None = None,
) -> AsyncIterator[EmbeddedNats]:
    """Run a server until the block ends. Raises UsageError if the port is in use."""
    make = partial(
        EmbeddedNats,
        data.path / FOLDER,
        holds=(data.lock,),
        jetstream=jetstream,
        monitor_port=monitor_port,
        password=password,
    )
    server = await _started(make, port)
    watching = asyncio.create_task(_restart(server))
    try:
        yield server
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(server.stop)


async def enable_jetstream(server: EmbeddedNats) -> None:
    """Restart a server with JetStream, unless it has it: an engine needs it. Clients reconnect."""
    async with server.restarting:
        if not server.jetstream:
            server.jetstream = True
            await asyncio.to_thread(server.stop)
            server.start()
            await asyncio.to_thread(server.ready)


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


def _start_again(server: EmbeddedNats) -> None:
    _log.error("nats server exited", log=str(server.folder / "nats-server.log"))
    try:
        server.start()
    except (OSError, SubprocessError) as error:  # such as a full disk
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
