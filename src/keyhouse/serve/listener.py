"""The HTTP server, uvicorn, in this process and on this event loop. It knows one ASGI application and nothing in it."""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn

from keyhouse.errors import UsageError
from keyhouse.limits import HTTP_HEAD_SECONDS_MAX, HTTP_STALL_SECONDS_MAX
from keyhouse.serve.uvicorn_protocol import HttpProtocol
from keyhouse.serve.write_buffer_limit import WriteBufferLimit
from keyhouse.settings.settings import Address

BACKLOG = 2_048
"""Connections that wait to be accepted."""


def bind(address: Address) -> socket.socket:
    """A socket there, not yet listening. UsageError when it can't be had."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except BaseException:
            bound.close()
            raise
        return bound
    except OSError as error:
        raise UsageError(
            "HTTP can't listen there: name another place with --http (port 0 is any), or off.",
            http=f"{address.host}:{address.port}",
            reason=error.strerror,
        ) from None


class _Server(uvicorn.Server):
    """Leaves signals to the program that it is a part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: Any,
    bound: socket.socket,
    *,
    drain_seconds: float,
    head_seconds_max: float = HTTP_HEAD_SECONDS_MAX,
    stall_seconds_max: float = HTTP_STALL_SECONDS_MAX,
    refused: Callable[[int], None] | None = None,
) -> AsyncIterator[Address]:
    """Serve until the block ends; then take no more connections, and give requests under way that long to end.

    Two others are how long the head of a request may take, and how long a client may take nothing of its answer. `refused`
    is told the status of what the application does not see: no HTTP, or a head too large, too slow or without its host.
    """
    speak: Any = partial(
        HttpProtocol,
        head_seconds_max=head_seconds_max,
        stall_seconds_max=stall_seconds_max,
        refused=refused,
        unsent=WriteBufferLimit(),
    )
    config = uvicorn.Config(
        app,
        http=speak,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        backlog=BACKLOG,
        timeout_graceful_shutdown=math.ceil(drain_seconds),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.005)
        host, port = bound.getsockname()[:2]
        yield Address(host, port)
    finally:
        server.should_exit = True
        await serving
