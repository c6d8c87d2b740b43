"""The HTTP listener: one ASGI application on a socket, in this process and on this event loop.

Workers accept connections of one socket. The first that wakes up would accept all of a burst, so
each accepts one per turn of its event loop, and one that has more connections than another waits a
moment first (`Acceptor`).
"""

import asyncio
import mmap
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import structlog

from keyhouse.errors import UsageError
from keyhouse.http.limits import (
    HTTP_HEADER_TIMEOUT_SECONDS,
    HTTP_KEEP_ALIVE_SECONDS,
    HTTP_WRITE_TIMEOUT_SECONDS,
)
from keyhouse.serve.http1 import Connection
from keyhouse.serve.http1_server import Http1Server, Reject, reject
from keyhouse.settings.settings import Address

__all__ = ["ConnectionShare", "bind", "listening"]

BACKLOG = 2_048
"""Connections that wait to be accepted."""


HTTP_OPTION: Final = "--http"

YIELD_SECONDS: Final = 0.001
"""Time in which a worker with fewer connections may accept one first."""

PAUSE_SECONDS: Final = 1.0
"""Pause of accepting when this process has no free file descriptor."""

_log = structlog.get_logger("keyhouse.http")


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
    share: "ConnectionShare | None" = None,
    option: str = HTTP_OPTION,
    root_path: str = "",
) -> AsyncIterator[Address]:
    """Serve until the block ends; then stop accepting, and wait `drain_seconds` for requests.

    `reject` renders the response to requests that do not reach the application: invalid HTTP, or
    headers that are too large, too slow or without a host. `stopping` is called when the block
    ends, and `linger_seconds`, for `Http1Server.drain`. `root_path` is the path that a proxy has
    removed from that of each request. `share` is that of a worker. Raises UsageError, which names
    the option to change, if another process listens there since the socket was bound.
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
    if share is None:
        make = partial(Connection, server)
        accepting = await server.loop.create_server(make, sock=bound, backlog=BACKLOG)
    else:
        acceptor = Acceptor(server, bound, share)
    try:
        yield address
    finally:
        if share is None:
            accepting.close()
        else:
            await acceptor.close()
        bound.close()
        stopping()
        await server.drain(drain_seconds, linger_seconds=linger_seconds())


class ConnectionShare:
    """The numbers of connections of all workers, in memory that they share, seen by one of them."""

    def __init__(self, counts: memoryview, worker: int) -> None:
        self._counts = counts
        self._worker = worker

    @staticmethod
    def counts(workers: int) -> memoryview:
        """Return shared memory, which processes that are forked later have too."""
        return memoryview(mmap.mmap(-1, 4 * workers)).cast("I")

    def exceeds_another(self, connections: int) -> bool:
        """Note the connections of this worker, and return whether another worker has fewer."""
        self._counts[self._worker] = connections
        return connections > min(self._counts)


class Acceptor:
    """Accepts the connections of a worker, in turns with the others."""

    def __init__(self, server: Http1Server, bound: socket.socket, share: ConnectionShare) -> None:
        self._server = server
        self._loop = server.loop
        self._bound = bound
        self._share = share
        self._has_yielded = False
        self._timer: asyncio.TimerHandle | None = None
        self._starting: set[asyncio.Task[Any]] = set()
        bound.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._bound, self._accept)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._bound)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _accept(self) -> None:
        connections = len(self._server.connections) + len(self._starting)
        if self._share.exceeds_another(connections) and not self._has_yielded:
            self._has_yielded = True
            return self._pause(YIELD_SECONDS)
        self._has_yielded = False
        try:
            accepted, _ = self._bound.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another worker was first, or the client has left
        except OSError as error:  # such as too many open files
            _log.error("connections are not accepted", reason=error.strerror)
            return self._pause(PAUSE_SECONDS)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        make = partial(Connection, self._server)
        task = self._loop.create_task(self._loop.connect_accepted_socket(make, accepted))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def close(self) -> None:
        """Stop accepting. Accepted connections are the server's when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._bound)
        await asyncio.gather(*self._starting, return_exceptions=True)
