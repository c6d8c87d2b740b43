"""The HTTP listener: one ASGI application on a socket, in this process and on this event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from keyhouse.errors import UsageError
from keyhouse.http.limits import (
    HTTP_HEADER_TIMEOUT_SECONDS,
    HTTP_KEEP_ALIVE_SECONDS,
    HTTP_WRITE_TIMEOUT_SECONDS,
)
from keyhouse.serve.http1 import Connection
from keyhouse.serve.http1_server import Http1Server, Reject, reject
from keyhouse.settings.settings import Address

__all__ = ["BACKLOG", "bind", "listening"]

BACKLOG = 2_048
"""Connections that wait to be accepted."""


HTTP_OPTION: Final = "--http"


def bind(address: Address, *, option: str = HTTP_OPTION) -> socket.socket:
    """Return a bound socket that does not listen yet. Raises UsageError, which names the option to
    change, if it cannot be bound."""
    try:
        family, kind, protocol, _, location = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(location)
        except BaseException:
            bound.close()
            raise
        return bound
    except OSError as error:
        raise _cannot_listen(address, option, error) from None


def _cannot_listen(address: Address, option: str, error: OSError) -> UsageError:
    other = "another address" if option == HTTP_OPTION else "another port"
    off = ", or off" if option == HTTP_OPTION else ""
    return UsageError(
        f"HTTP cannot listen there: choose {other} with {option} (port 0 is any){off}.",
        http=f"{address.host}:{address.port}",
        reason=error.strerror,
    )


@asynccontextmanager
async def listening(
    app: Any,
    bound: socket.socket,
    *,
    drain_seconds: float,
    header_timeout_seconds: float = HTTP_HEADER_TIMEOUT_SECONDS,
    write_timeout_seconds: float = HTTP_WRITE_TIMEOUT_SECONDS,
    reject: Reject = reject,
    stopping: Callable[[], None] = lambda: None,
    linger_seconds: Callable[[], float] = lambda: 0.0,
    option: str = HTTP_OPTION,
    root_path: str = "",
) -> AsyncIterator[Address]:
    """Serve until the block ends; then stop accepting, and wait `drain_seconds` for requests.

    `reject` renders the response to requests that do not reach the application: invalid HTTP, or
    headers that are too large, too slow or without a host. `stopping` is called when the block
    ends, and `linger_seconds`, for `Http1Server.drain`. `root_path` is the path that a proxy has
    removed from that of each request. Raises UsageError, which names the option to change, if
    another process listens there since the socket was bound.
    """
    server = Http1Server(
        app,
        header_timeout_seconds=header_timeout_seconds,
        write_timeout_seconds=write_timeout_seconds,
        keep_alive_seconds=HTTP_KEEP_ALIVE_SECONDS,
        reject=reject,
        root_path=root_path,
    )
    address = Address(*bound.getsockname()[:2])
    try:
        bound.listen(BACKLOG)  # two processes may bind one address, but only one may listen
    except OSError as error:
        raise _cannot_listen(address, option, error) from None
    loop = asyncio.get_running_loop()
    accepting = await loop.create_server(partial(Connection, server), sock=bound, backlog=BACKLOG)
    try:
        yield address
    finally:
        accepting.close()
        bound.close()
        stopping()
        await server.drain(drain_seconds, linger_seconds=linger_seconds())
