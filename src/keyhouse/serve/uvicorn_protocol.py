"""HTTP/1.1 on uvicorn, with timeouts and limits.

uvicorn buffers the head of a request without a limit, waits without a timeout for one that is
incomplete and for a client that does not read its response, and rejects invalid requests with plain
text. `HttpProtocol` adds the limits and the error format. A head that arrives in one piece, as
nearly all do, starts no timer.

Names of uvicorn in use that are not documented (checked by `tests/serve/test_uvicorn_names.py`):

- Of `HttpToolsProtocol`, for limits and timeouts of the head and the response to an invalid
  request: `cycle`, `scope`, `url`, `headers`, `parser`, `flow`, `pipeline`, `loop`, `transport`,
  `server_state`, `on_header`, `on_headers_complete`, `on_body`, `on_message_complete`,
  `on_response_complete`; and `_unset_keepalive_if_required`, because `data_received` is replaced:
  uvicorn's sends plain text.
- `STATUS_LINE`, the first line of a response by status.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import httptools
import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http.errors import PROBLEM, HeadError, SlowError
from keyhouse.http.limits import (
    HTTP_DISCARD_BYTES_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_STREAM_BYTES,
    HTTP_STREAM_COPIES,
)
from keyhouse.http.response import EncodedResponse
from keyhouse.serve.write_buffer_limit import WriteBufferLimit
from keyhouse.serve.write_coalescing import WriteBatch

_HEAD_PIECE_BYTES: Final = 4_096
_BODY_PIECE_BYTES: Final = 65_536
"""Bytes parsed between two looks at the pipeline: they bound the requests that one read queues."""

_CHUNKS_AT_ONCE: Final = 256
"""Chunks of a body after which other connections are read first: each may be a single byte."""

_log = structlog.get_logger("keyhouse.http")

Timer = asyncio.TimerHandle
Message = Any
Reject = Callable[[KeyhouseError, bytes, HeaderPairs], EncodedResponse]
"""Returns the response to a request that is rejected here; it has the path and headers so far."""


def reject(error: KeyhouseError, raw_path: bytes, headers: HeaderPairs) -> EncodedResponse:
    """Reject with a problem document, for an application without its own `reject`."""
    id = secrets.token_hex(8)
    response = PROBLEM.response(error, id)
    response.headers = response.all_headers(id)
    return response


class _ReadFlow(FlowControl):
    """Keeps reading paused while requests of the connection are queued or not parsed yet.

    uvicorn resumes after each response: a client that pipelines and never reads its responses then
    sends thousands of requests for each one that is answered.
    """

    def __init__(self, protocol: "HttpProtocol", transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if not self._protocol.pipeline and not self._protocol.unparsed:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection.

    The head of a request must arrive within `header_timeout_seconds`; a client must read some of
    its response every `write_timeout_seconds`. Bounded per connection: bytes parsed ahead of a
    queued request, the head, bytes of a body that carry no content (chunk extensions, trailers,
    which are dropped), and bytes read after the response to a request whose body is not complete.
    """

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # None before the first request
    scope: Any

    def __init__(
        self,
        *arguments: Any,
        header_timeout_seconds: float,
        write_timeout_seconds: float,
        reject: Reject = reject,
        write_buffer_limit: WriteBufferLimit | None = None,
        write_batch: WriteBatch | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._reject = reject
        self._write_buffer_limit = (
            WriteBufferLimit() if write_buffer_limit is None else write_buffer_limit
        )
        self._flush = _nothing if write_batch is None else write_batch.flush
        self._header_timeout_seconds = header_timeout_seconds
        self._write_timeout_seconds = write_timeout_seconds
        self._header_timer: Timer | None = None
        self._write_timer: Timer | None = None
        self._incomplete_scope: Any = None
        self._head_received = 0  # bytes of an incomplete head, without its first piece
        self._piece_size = 0
        self.unparsed = b""
        self._is_chunked = False
        self._is_parse_scheduled = False
        self._chunks = 0  # of the piece that is parsed
        self._body_parts: list[bytes] = []  # of the piece that is parsed
        self._in_message = False  # from the end of a head to the end of its body
        self._has_content = False  # the piece contained some of a body
        self._is_discarding = False  # the response is complete and its request is not
        self._overhead_bytes = 0  # of a body, since the last content
        self._trailer_bytes = 0
        self._discarded_bytes = 0  # of a body, since the response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _ReadFlow(self, transport)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._write_buffer_limit.remove(self)
        super().connection_lost(exc)
        # They refer to this object: without them nothing is left to the garbage collector, which
        # would stop all requests for milliseconds. A request that is still handled has its own.
        self.cycle = None
        self.pipeline.clear()
        self.flow = None  # type: ignore[assignment]

    def shutdown(self) -> None:
        self._flush()
        super().shutdown()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.unparsed or len(data) > _HEAD_PIECE_BYTES:
            self.unparsed += data
            if not self._is_parse_scheduled:
                self._parse_pieces()
        else:
            self._parse(data)

    def _parse_pieces(self) -> None:
        """Parse until a request is queued; `on_response_complete` continues. Chunked bodies are
        parsed in small pieces, one in a turn of the event loop."""
        self._is_parse_scheduled = False
        while self.unparsed and not self.pipeline and not self._is_parse_scheduled:
            if self.transport.is_closing():
                self.unparsed = b""
                return
            whole = self._in_message and not self._is_chunked
            size = _BODY_PIECE_BYTES if whole else _HEAD_PIECE_BYTES
            piece, self.unparsed = self.unparsed[:size], self.unparsed[size:]
            self._parse(piece)
            self._is_parse_scheduled = self._chunks > _CHUNKS_AT_ONCE
        if self.unparsed:
            self.flow.pause_reading()
            if self._is_parse_scheduled:
                self.loop.call_soon(self._parse_pieces)
        else:
            self._is_parse_scheduled = False
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._piece_size = len(data)
        self._chunks = 0
        self._has_content = False
        cycle = self.cycle
        self._is_discarding = self._in_message and cycle is not None and cycle.response_complete
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self.cycle is not None:
                self.cycle.keep_alive = (
                    False  # answered as a plain request, the last of this connection
                )
        except httptools.HttpParserError as error:
            cause = error.__context__
            is_own = isinstance(cause, KeyhouseError)
            self._respond_error(cause if is_own else UsageError("Invalid HTTP request."))  # type: ignore[arg-type]
            return
        if self._body_parts:
            self._end_piece()
        if self._in_message and not self._check_body(len(data)):
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.scope is not self.scope:
            self._wait_for_head(len(data))

    def _check_body(self, size: int) -> bool:
        """Return False, and close, if a body takes bytes without content or after its response."""
        assert self.cycle is not None
        if self.cycle.response_complete:
            self._discarded_bytes += size
            if self._discarded_bytes > HTTP_DISCARD_BYTES_MAX:
                self._flush()
                self.transport.close()
                return False
        self._overhead_bytes = 0 if self._has_content else self._overhead_bytes + size
        if self._overhead_bytes > HTTP_HEAD_BYTES_MAX:
            self._respond_error(_head_too_large())
            return False
        return True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_message:
            HttpToolsProtocol.on_header(self, name, value)
            return
        # A trailer: never a header (RFC 9110, 6.5.1), and bounded like one.
        self._trailer_bytes += len(name) + len(value) + 4
        if self._trailer_bytes > HTTP_HEAD_BYTES_MAX:
            raise _head_too_large()

    def on_body(self, body: bytes) -> None:
        self._has_content = True
        self._chunks += 1
        if not self._is_discarding:
            self._body_parts.append(body)

    def _end_piece(self) -> None:
        """Pass on what was parsed of a body. uvicorn copies the whole body for each part."""
        parts, self._body_parts = self._body_parts, []
        HttpToolsProtocol.on_body(self, parts[0] if len(parts) == 1 else b"".join(parts))

    def on_message_complete(self) -> None:
        if self._body_parts:
            self._end_piece()
        self._in_message = self._is_discarding = False
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.unparsed and not self.pipeline:
            self.loop.call_soon(self._parse_pieces)

    def _wait_for_head(self, size: int) -> None:
        """Called when a head is incomplete, or when empty lines or an unread body were received."""
        if self._in_head:
            if self._incomplete_scope is self.scope:
                self._head_received += size
            self._incomplete_scope = self.scope
            if self._head_received > HTTP_HEAD_BYTES_MAX:
                self._respond_error(_head_too_large())
                return
        self._start_header_timer()

    def on_headers_complete(self) -> None:
        if (
            self._head_received + _HEAD_PIECE_BYTES + self._piece_size > HTTP_HEAD_BYTES_MAX
            and self._head_bytes() > HTTP_HEAD_BYTES_MAX
        ):
            raise _head_too_large()
        self._check_host()
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
            self._head_received = 0
        self._in_message = True
        self._overhead_bytes = self._trailer_bytes = self._discarded_bytes = 0
        HttpToolsProtocol.on_headers_complete(self)

    def _check_host(self) -> None:
        """RFC 9112, 3.2: a request without Host, or with two, is ambiguous."""
        names = [name for name, _ in self.headers]
        self._is_chunked = b"transfer-encoding" in names
        hosts = names.count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            raise UsageError("A request must have one Host header.", hosts=hosts)

    @property
    def _in_head(self) -> bool:
        """True while a head is incomplete: each request has its own scope from its first byte."""
        return self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                self._header_timeout_seconds, self._header_timed_out
            )

    def _header_timed_out(self) -> None:
        self._flush()
        self._header_timer = None
        if self._in_head:
            self._respond_error(SlowError("The headers were not received in time."))
        else:
            self.transport.close()

    # Writing

    def pause_writing(self) -> None:
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._start_write_timer(size)
        if self.cycle is not None and not self.cycle.response_complete:  # more pieces follow
            size += max(HTTP_STREAM_BYTES, HTTP_STREAM_COPIES * size)
        self._write_buffer_limit.add(self, size)

    def resume_writing(self) -> None:
        self._write_buffer_limit.remove(self)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _start_write_timer(self, size: int) -> None:
        self._write_timer = self.loop.call_later(
            self._write_timeout_seconds, self._check_progress, size
        )

    def _check_progress(self, before: int) -> None:
        """Abort if the client has read nothing; a slow client continues."""
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._start_write_timer(size)
        else:
            self._write_timer = None
            self.transport.abort()

    def abort(self) -> None:
        """Disconnect a slow client: see `WriteBufferLimit`."""
        _log.warning("slow client aborted", buffered=self.transport.get_write_buffer_size())
        self.transport.abort()

    def _respond_error(self, error: KeyhouseError) -> None:
        """Respond and close; only close if the client could mistake it for another response."""
        self._flush()
        cycle = self.cycle
        if self._in_message and cycle is not None and cycle.response_complete:
            self.transport.close()
            return
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:  # an earlier request, whose response is sent first and last
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        in_head = self._in_head
        response = self._reject(
            error, self.url.partition(b"?")[0] if in_head else b"", self.headers if in_head else ()
        )
        self.transport.write(_encoded(response, self.server_state.default_headers))
        self.transport.close()


def _head_too_large() -> HeadError:
    return HeadError(
        "The headers are too large: send fewer, or shorter ones.", limit=HTTP_HEAD_BYTES_MAX
    )


def _encoded(response: EncodedResponse, default_headers: HeaderPairs) -> bytes:
    """Return a response as it is sent, with `Connection: close`."""
    body = response.body
    assert isinstance(body, bytes)
    headers = dict([*default_headers, *response.headers])
    headers[b"content-length"] = b"%d" % len(body)
    headers[b"connection"] = b"close"
    lines = b"".join(b"%s: %s\r\n" % header for header in headers.items())
    return STATUS_LINE[response.status] + lines + b"\r\n" + body


def _nothing() -> None: ...
