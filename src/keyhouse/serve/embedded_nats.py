"""The NATS that endpoints are answered on: servers that are there, or one of our own beside this process.

Our own listens on loopback only, keeps its streams in the data folder, and is begun again when it ends by itself. It is
started from the event loop's thread, which must be the main one: it lives as long as that thread.
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
LOOK_SECONDS: Final = 0.5
"""How long a server that has ended by itself may stay unnoticed."""

_TRIES: Final = 3
_log = structlog.get_logger("keyhouse.serve")


@asynccontextmanager
async def embedded_nats(data: DataDir, port: int) -> AsyncIterator[NatsServer]:
    """A server that answers, for as long as the block runs. UsageError when the port is taken."""
    server = await _started(data, port)
    watching = asyncio.create_task(_begin_again(server))
    try:
        yield server
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(server.stop)


async def _started(data: DataDir, port: int) -> NatsServer:
    """A port that was free when we looked can be taken when the server does: then another is tried, if any will do."""
    for left in reversed(range(1 if port else _TRIES)):
        if port and _is_taken(port):
            raise UsageError(
                "The port for NATS is taken: name another with --nats-port (0 is any), or join what is there with --nats.",
                port=port,
            )
        server = NatsServer(data.path / FOLDER, port=port or None, holds=(data.lock,))
        server.start()
        try:
            await asyncio.to_thread(server.ready)
            return server
        except UnavailableError:
            server.kill()
            if not left:
                raise
    raise AssertionError("unreachable")


async def _begin_again(server: NatsServer) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if server.process_id is None:
            _log.error("nats server ended by itself", log=str(server.folder / "nats-server.log"))
            try:
                server.start()
            except (
                OSError,
                SubprocessError,
            ) as error:  # such as a full disk, which may be what ended it
                _log.error(
                    "nats server could not be begun again",
                    reason=str(error),
                    again_in_seconds=LOOK_SECONDS,
                )


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False
