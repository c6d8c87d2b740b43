"""State that the connections of one HTTP listener share: settings, tasks and writes."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from typing import Any, Protocol

import structlog

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import KeyhouseError
from keyhouse.http.errors import PROBLEM
from keyhouse.http.limits import HTTP_WRITE_BUFFER_BYTES_MAX
from keyhouse.http.response import EncodedResponse

_log = structlog.get_logger("keyhouse.http")

Reject = Callable[[KeyhouseError, bytes, HeaderPairs], EncodedResponse]
"""Returns the response to a request that is rejected here; it has the path and headers so far."""


def reject(error: KeyhouseError, raw_path: bytes, headers: HeaderPairs) -> EncodedResponse:
    """Reject with a problem document, for an application without its own `reject`."""
    id = secrets.token_hex(8)
    response = PROBLEM.response(error, id)
    response.headers = response.all_headers(id)
    return response


class HttpConnection(Protocol):
    """A connection, as its exchanges and the server see it: `http1.Connection`."""

    server: "Http1Server"
    transport: asyncio.Transport
    writable: asyncio.Event | None
    """Set when the client has read what was sent; None if it need not be waited for."""

    def end_exchange(self) -> None:
        """The response to the first request is complete: start the next, or wait for one."""

    def update_reading(self) -> None:
        """Read only if there is nothing to parse or to handle first."""

    def shut_down(self) -> None:
        """Close now, or after the response to the last request."""

    def abort(self) -> None:
        """Disconnect a slow client."""


class WriteBufferLimit:
    """Bounds the unread responses of all connections together.

    A client may read its response byte by byte: some hundred of them could make the service buffer
    gigabytes. Beyond the limit the connection that has waited longest is aborted.
    """

    __slots__ = ("_buffered", "_bytes_max", "_total")

    def __init__(self, bytes_max: int = HTTP_WRITE_BUFFER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffered: dict[HttpConnection, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """Return the number of waiting connections."""
        return len(self._buffered)

    def add(self, connection: HttpConnection, size: int) -> None:
        """Note that a connection has `size` bytes to write and waits. The newest is not aborted."""
        self.remove(connection)
        self._buffered[connection] = size
        self._total += size
        while self._total > self._bytes_max and len(self._buffered) > 1:
            oldest = next(iter(self._buffered))
            self.remove(oldest)
            oldest.abort()

    def remove(self, connection: HttpConnection) -> None:
        self._total -= self._buffered.pop(connection, 0)


class Http1Server:
    """The state that the connections of one listener share.

    Writes are coalesced: the last bytes of each response leave at the end of the turn of the event
    loop (`write_later`). Each write wakes a client: after all requests of a turn, most clients of a
    busy server are awake already, and a write costs half. `flush` must be called before a write or
    close outside of a request's task. The task of the next request on a connection starts in a
    later turn, so its response comes later.
    """

    def __init__(
        self,
        app: Any,
        *,
        header_timeout_seconds: float,
        write_timeout_seconds: float,
        keep_alive_seconds: float,
        reject: Reject = reject,
        root_path: str = "",
        write_buffer_limit: WriteBufferLimit | None = None,
    ) -> None:
        self.app = app
        self.header_timeout_seconds = header_timeout_seconds
        self.write_timeout_seconds = write_timeout_seconds
        self.keep_alive_seconds = keep_alive_seconds
        self.reject = reject
        self.root_path = root_path
        self.raw_root_path = root_path.encode("ascii")
        self.write_buffer_limit = (
            WriteBufferLimit() if write_buffer_limit is None else write_buffer_limit
        )
        self.loop = asyncio.get_running_loop()
        self.connections: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Event | None = None
        self.pending_writes: list[tuple[asyncio.Transport, bytes]] = []
        self._date = 0
        self._date_line = b""
        self.is_draining = False
        """Each further response is the last one of its connection."""

    def date_line(self) -> bytes:
        """Return the Date header, which changes each second."""
        now = int(time.time())
        if now != self._date:
            self._date = now
            self._date_line = b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
        return self._date_line

    def write_later(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self.pending_writes:
            self.loop.call_soon(self.flush)
        self.pending_writes.append((transport, data))

    def flush(self) -> None:
        pending, self.pending_writes = self.pending_writes, []
        for transport, data in pending:
            if not transport.is_closing():
                transport.write(data)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        return task

    def end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._check_idle()

    def end_connection(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self._check_idle()

    def _check_idle(self) -> None:
        if self._idle is not None and not self._tasks and not self.connections:
            self._idle.set()

    async def drain(self, seconds: float, *, linger_seconds: float = 0.0) -> None:
        """Close idle connections, and the others after the response to their last request. After
        the timeout the remaining requests are cancelled.

        A client may send a request on an idle connection at the moment in which it is closed. So
        connections stay open for `linger_seconds`: each request in this time is answered with
        `Connection: close`, and the next one comes over a new connection.
        """
        self.flush()
        self.is_draining = True
        if linger_seconds and await self._is_idle_within(linger_seconds):
            return
        for connection in [*self.connections]:
            connection.shut_down()
        if not await self._is_idle_within(seconds):
            if self._tasks:
                _log.warning("requests cancelled", count=len(self._tasks))
            for task in self._tasks:
                task.cancel()

    async def _is_idle_within(self, seconds: float) -> bool:
        self._idle = asyncio.Event()
        self._check_idle()
        try:
            async with asyncio.timeout(seconds):
                return await self._idle.wait()
        except TimeoutError:
            return False
