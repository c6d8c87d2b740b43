"""One HTTP/1.1 request and its response, as an ASGI application sees them.

The head of a response with a Content-Length is not sent before the first piece of its body, so that
a whole response is one write, and so that an application that fails in between can still respond
with an error.
"""

import asyncio
import traceback
from http import HTTPStatus
from typing import Any, Final

import structlog

from keyhouse.auth.caller import HeaderPairs
from keyhouse.http.response import (
    NO_BODY_STATUSES,
    AbortedError,
    EncodedResponse,
    ResponseSender,
)
from keyhouse.serve.http1_server import HttpConnection

_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINES: Final = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b""))
    for status in range(100, 600)
}

_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
"""Invalid in a header. The lines of a head contain two of them each, and no more."""

_COALESCED_BYTES_MAX: Final = 256 * 1_024
"""A longer body is written separately: to copy megabytes takes milliseconds."""

_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_START, _BODY = "http.response.start", "http.response.body"
_ERROR_START = {
    "type": _START,
    "status": 500,
    "headers": [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"21"),
        (b"connection", b"close"),
    ],
}
_ERROR_BODY = {"type": _BODY, "body": b"Internal Server Error"}

_log = structlog.get_logger("keyhouse.http")

Message = dict[str, Any]


class Exchange(ResponseSender):
    """A request and its response; as a function, it is the `send` of ASGI."""

    def __init__(
        self,
        connection: HttpConnection,
        scope: Message,
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self.keep_alive = keep_alive
        self._task: asyncio.Task[None] | None = None
        self.is_disconnected = False
        # The request
        self.body = bytearray()  # received, and not passed on yet
        self.more_body = True
        self._expects_continue = expects_continue
        self._has_news = False
        self._news: asyncio.Event | None = None
        # The response
        self._head = b""  # waits for the body
        self._left = 0  # bytes that its Content-Length announces
        self._is_chunked = False
        self.is_started = False
        self.is_complete = False

    def start(self) -> None:
        self._task = self._connection.server.start_task(self._run())

    async def _run(self) -> None:
        """Run the application. If it fails, respond with an error or close the connection."""
        server = self._connection.server
        try:
            await server.app(self._scope, self.receive, self)
            if not self.is_complete and not self.is_disconnected:
                raise RuntimeError("The application returned without completing its response.")
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, Exception) and not isinstance(error, AbortedError):
                trace = "".join(traceback.format_exception(error))
                _log.error("application failed", trace=trace)
            if not self.is_started and self._connection.writable is None:  # it need not wait
                self._head = b""
                await self(_ERROR_START)
                await self(_ERROR_BODY)
            elif not self.is_complete:
                self._connection.transport.close()
        finally:
            task, self._task = self._task, None
            assert task is not None
            server.end_task(task)

    def disconnect(self) -> None:
        """The client is gone, or its request is invalid: nothing is received or sent any more."""
        self.is_disconnected = True
        self.notify()

    def notify(self) -> None:
        """Wake up `receive`: some of the body, or its end, was received, or nothing more will."""
        self._has_news = True
        if self._news is not None:
            self._news.set()
            self._news = None

    async def receive(self) -> Message:
        """Return the next ASGI message: some of the body, or a disconnect."""
        connection = self._connection
        if self._expects_continue and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects_continue = False
        if not self.is_disconnected and not self.is_complete:
            if not self._has_news:
                if self._news is None:
                    self._news = asyncio.Event()
                await self._news.wait()
            self._has_news = False
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        if self.more_body:
            connection.update_reading()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def __call__(self, message: Message) -> None:
        """Send an ASGI message."""
        if not await self._can_write():
            return
        expected = _BODY if self.is_started or self._head else _START
        if self.is_complete or message["type"] != expected:
            raise RuntimeError(f"Unexpected ASGI message: {message['type']}.")
        if expected is _START:
            self._start(message["status"], message.get("headers", ()))
            return
        body, more_body = message.get("body", b""), message.get("more_body", False)
        if self._scope["method"] == "HEAD":
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more_body:
                body += b"0\r\n\r\n"
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more_body):
                raise RuntimeError("The body of the response is not as long as its Content-Length.")
        head, self._head = self._head, b""
        self._write(head, body, is_last=not more_body)

    async def send_response(self, request_id: str, response: EncodedResponse) -> None:
        connection = self._connection
        is_idle = connection.writable is None and not connection.transport.is_closing()
        if not is_idle and not await self._can_write():
            return
        if self.is_started:
            raise RuntimeError("The response has started.")
        status, body = response.status, response.body
        lines = b"%bx-request-id: %b\r\n" % (response.fixed.lines, request_id.encode())
        if status not in NO_BODY_STATUSES:
            lines = b"%bcontent-length: %d\r\n" % (lines, len(body))
        head = self._encoded_head(status, response.headers, lines)
        self._write(head, b"" if self._scope["method"] == "HEAD" else body, is_last=True)

    async def _can_write(self) -> bool:
        """Wait until the client has read what was sent. Return False if it has disconnected."""
        connection = self._connection
        while connection.writable is not None and not self.is_disconnected:
            await connection.writable.wait()
        if connection.transport.is_closing():
            self.is_disconnected = True
        return not self.is_disconnected

    def _start(self, status: int, headers: HeaderPairs) -> None:
        pairs = [(name.lower(), value) for name, value in headers]
        values = dict(pairs)
        framing = b""
        if values.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._is_chunked = True
        elif (length := values.get(b"content-length")) is not None:
            self._left = int(length)
        elif self._scope["method"] != "HEAD" and status not in NO_BODY_STATUSES:
            self._is_chunked, framing = True, _CHUNKED
        head = self._encoded_head(status, pairs, b"", framing)
        if b"content-length" in values:
            self._head = head
        else:
            self._write(head, b"", is_last=False)

    def _encoded_head(
        self, status: int, headers: HeaderPairs, lines: bytes, framing: bytes = b""
    ) -> bytes:
        """Return the head with these headers, which are checked, and lines, which are valid."""
        has_close = False
        if headers:
            own = b"".join([b"%b: %b\r\n" % header for header in headers])
            if len(own) - len(own.translate(None, _CONTROLS)) != 2 * len(headers):
                raise RuntimeError("A header of the response contains a control character.")
            lines = own + lines
            for name, value in headers:
                if name == b"connection" and b"close" in value.lower():
                    has_close, self.keep_alive = True, False
        if not self.keep_alive and not has_close:
            lines += b"connection: close\r\n"
        date_line = self._connection.server.date_line()
        return b"%b%b%b%b\r\n" % (STATUS_LINES[status], date_line, lines, framing)

    def _write(self, head: bytes, body: bytes, *, is_last: bool) -> None:
        connection = self._connection
        transport = connection.transport
        self.is_started = True
        self.is_complete = is_last
        self._expects_continue = False
        if len(body) <= _COALESCED_BYTES_MAX:
            body = head + body
        else:
            transport.write(head)
        if is_last and self.keep_alive and len(body) <= _COALESCED_BYTES_MAX:
            connection.server.write_later(transport, body)
        elif body:
            transport.write(body)
        if is_last:
            if not self.keep_alive:
                transport.close()
            self.notify()
            connection.end_exchange()
