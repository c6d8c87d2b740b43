"""Write coalescing: one write for each whole response, at the end of a turn of the event loop.

uvicorn also validates each header with two regular expressions, and writes the head and the body
separately as soon as it has them. `coalesced` joins a response that has a Content-Length and one
body, checks it once, and writes it once, at the end of the turn of the event loop (`WriteBatch`).
Each write wakes the client: after all requests of a turn, most clients of a busy server are awake
already, and a write costs half. Streams, HEAD and closing connections are left to uvicorn. An
application that is not wrapped hands over a whole response by one call, with the headers that its
routes share as bytes.

Names of uvicorn in use that are not documented (checked by `tests/serve/test_uvicorn_names.py`):

- Of `RequestResponseCycle`, because `coalesced` does what its `send` does for a whole response:
  `send`, `scope`, `transport`, `flow`, `default_headers`, `keep_alive`, `disconnected`,
  `more_body`, `message_event`, `on_response`, `response_started`, `response_complete`,
  `waiting_for_100_continue`.
- `STATUS_LINE`, the first line of a response by status.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from keyhouse.auth.caller import HeaderPairs
from keyhouse.http.response import NO_BODY_STATUSES, EncodedResponse

_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
"""Invalid in a header. The head as a whole contains two of them per line, and no more."""

_COALESCED_BYTES_MAX: Final = 256 * 1_024
"""A longer body is written separately: to copy megabytes takes milliseconds."""

Message = Any


class WriteBatch:
    """Writes the responses of one turn of the event loop at its end.

    `flush` must be called before a write or close that does not go through it. The task of the next
    request on a connection starts in a later turn, so its response comes later.
    """

    __slots__ = ("_default_headers", "_default_lines", "_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: list[tuple[asyncio.Transport, bytes]] = []
        self._default_headers: HeaderPairs = []
        self._default_lines = b""

    def default_lines(self, headers: HeaderPairs) -> bytes:
        """Return uvicorn's own headers as they are sent: the date, in a new list each second."""
        if headers is not self._default_headers:
            self._default_headers = headers
            self._default_lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._default_lines

    def add(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append((transport, data))

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        for transport, data in pending:
            if not transport.is_closing():
                transport.write(data)


def coalesced(app: Any, batch: WriteBatch) -> Any:
    """Return the ASGI application with whole responses in one write. Only for `HttpProtocol`."""

    def application(scope: Any, receive: Any, send: Any) -> Any:
        return app(scope, receive, _CoalescedSend(send.__self__, batch))

    return application


class _CoalescedSend:
    """Sends the response of one request: `send` of ASGI, and `respond` for a whole response.

    Middleware wraps `send`, and so hides `respond`: no response is sent past it.
    """

    __slots__ = ("_batch", "_cycle", "_start")

    def __init__(self, cycle: RequestResponseCycle, batch: WriteBatch) -> None:
        self._cycle = cycle
        self._batch = batch
        self._start: Message = None

    async def __call__(self, message: Message) -> None:
        cycle, start = self._cycle, self._start
        if start is None:
            if (
                message["type"] == "http.response.start"
                and not cycle.response_started
                and _has_length(message)
            ):
                self._start = message  # its body follows at once
            else:
                await _send(cycle, message)
            return
        self._start = None
        headers, body = start["headers"], message.get("body", b"")
        if (
            message.get("more_body", False)
            or b"%d" % len(body) != headers[-1][1]
            or message["type"] != "http.response.body"
            or not self._write(start["status"], b"", headers, body)
        ):
            await _send(cycle, start)
            await _send(cycle, message)

    def respond(self, request_id: str, response: EncodedResponse) -> bool:
        """Send a response whose body is bytes. Return False, without having sent any of it, if it
        is left to `send`."""
        status, headers, body = response.status, response.headers, response.body
        lines = b"%bx-request-id: %b\r\n" % (response.fixed.lines, request_id.encode())
        if status not in NO_BODY_STATUSES:
            lines = b"%bcontent-length: %d\r\n" % (lines, len(body))
        return self._write(status, lines, headers, body)

    def _write(self, status: int, lines: bytes, headers: HeaderPairs, body: bytes) -> bool:
        """Write a response with these lines, which are valid, and headers, which are checked."""
        cycle, batch = self._cycle, self._batch
        if (
            not cycle.keep_alive
            or cycle.response_started
            or cycle.disconnected
            or cycle.flow.write_paused
            or cycle.scope["method"] == "HEAD"
            or len(body) > _COALESCED_BYTES_MAX
        ):
            return False
        if headers:
            own = b"".join([b"%b: %b\r\n" % header for header in headers])
            if (
                len(own) - len(own.translate(None, _CONTROLS)) != 2 * len(headers)
                or b"\nconnection:" in b"\n" + own
            ):
                return False
            lines = own + lines
        default_lines = batch.default_lines(cycle.default_headers)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        batch.add(
            cycle.transport, b"%b%b%b\r\n%b" % (STATUS_LINE[status], default_lines, lines, body)
        )
        cycle.message_event.set()
        cycle.on_response()
        return True


async def _send(cycle: RequestResponseCycle, message: Message) -> None:
    """Send by uvicorn, which notices a disconnect only for the last of pipelined requests."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.transport.is_closing():
        cycle.disconnected = True
    await cycle.send(message)


def _has_length(start: Message) -> bool:
    headers = start["headers"]
    return bool(headers) and headers[-1][0] == b"content-length"
