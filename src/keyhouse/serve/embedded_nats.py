"""The embedded nats-server: a child process on loopback, with its streams in the data folder.

It is restarted if it exits. It must be started from the main thread, and lives as long as that.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import SubprocessError
from typing import Final

import structlog

from keyhouse.errors import UnavailableError, UsageError
from keyhouse.nats.server import NatsServer
from keyhouse.serve.data_dir import DataDir

FOLDER: Final = "nats"
CHECK_SECONDS: Final = 0.5
"""Interval of the checks that the server runs."""

_ATTEMPTS: Final = 3
_log = structlog.get_logger("keyhouse.serve")


@asynccontextmanager
async def embedded_nats(data: DataDir, port: int) -> AsyncIterator[NatsServer]:
    """Run a server until the block ends. Raises UsageError if the port is in use."""
    server = await _started(data, port)
    watching = asyncio.create_task(_restart(server))
    try:
        yield server
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(server.stop)


async def _started(data: DataDir, port: int) -> NatsServer:
    """Start a server. Without a fixed port, try others: a free one can be taken before it binds."""
    for attempts_left in reversed(range(1 if port else _ATTEMPTS)):
        if port and _is_taken(port):
            raise UsageError(
                "The port for NATS is in use: choose another with --nats-port (0 is any), or "
                "connect to the server there with --nats.",
                port=port,
            )
        server = NatsServer(data.path / FOLDER, port=port or None, holds=(data.lock,))
        server.start()
        try:
            await asyncio.to_thread(server.ready)
            return server
        except UnavailableError:
            server.kill()
            if not attempts_left:
                raise
    raise AssertionError("unreachable")


async def _restart(server: NatsServer) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if server.process_id is None:
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
