"""HTTP/1.1 on httptools: the connections of one listener, with their timeouts and limits.

A `Connection` parses requests and hands each to the ASGI application as an `Exchange` (in
`http1_exchange.py`), one after another. Several of these are true at the same time:

| a connection | while | is bounded by |
|---|---|---|
| is idle | `_idle_since` is set | the keep-alive timeout |
| reads a head | `_in_head` | the header timeout, HTTP_HEAD_BYTES_MAX |
| reads a body | `_receiving` is set | a full buffer, which stops reading; bytes without content |
| discards a body | `_receiving` is complete | the header timeout, HTTP_DISCARD_BYTES_MAX |
| handles requests | `_exchanges`: the first runs, others wait | one piece parsed ahead |
| waits for its client | `writable` is set | the write timeout, `WriteBufferLimit` |
| has failed | `_has_failed` | no more is read; it closes after the responses that are due |

A head that arrives in one piece, as nearly all do, starts no timer; neither does a response: the
keep-alive timer of a connection runs on while it is busy, and looks at the time when it ends.
"""

import asyncio
from collections import deque
from typing import Any, Final
from urllib.parse import unquote

import httptools
import structlog

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http.errors import HeadError, SlowError
from keyhouse.http.limits import (
    HTTP_DISCARD_BYTES_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_STREAM_BYTES,
    HTTP_STREAM_COPIES,
)
from keyhouse.http.response import EncodedResponse
from keyhouse.serve.http1_exchange import STATUS_LINES, Exchange
from keyhouse.serve.http1_server import Http1Server

_HEAD_PIECE_BYTES: Final = 4_096
_BODY_PIECE_BYTES: Final = 65_536
"""Bytes parsed between two looks at the queue: they bound the requests that one read queues."""

_BODY_BUFFER_BYTES: Final = 65_536
"""Bytes of a body that wait for the application; with more, no more is read."""

_CHUNKS_AT_ONCE: Final = 256
"""Chunks of a body after which other connections are read first: each may be a single byte."""

_log = structlog.get_logger("keyhouse.http")


class Connection(asyncio.Protocol):
    """One connection: the callbacks of its transport, its parser and its exchanges."""

    transport: asyncio.Transport
    _client: tuple[str, int] | None
    _local: tuple[str, int] | None

    def __init__(self, server: Http1Server) -> None:
        self.server = server
        self.writable: asyncio.Event | None = None  # set when the client has read what was sent
        self._parser: Any = httptools.HttpRequestParser(self)
        # Requests that follow one with `Connection: close` are ignored, and not errors.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._exchanges: deque[Exchange] = deque()  # without a complete response
        self._receiving: Exchange | None = None  # from the end of a head to the end of its body
        self._has_failed = False
        self._is_reading_paused = False

        self._in_head = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_received = 0  # bytes of the pieces that an incomplete head was in
        self._head_first = 0  # bytes of the first of them, which may start with a body

        self._unparsed = b""
        self._is_parse_scheduled = False
        self._piece_size = 0
        self._chunks = 0  # of the piece that is parsed
        self._body_parts: list[bytes] = []  # of the piece that is parsed
        self._is_chunked = False
        self._overhead_bytes = 0  # of a body, since the last content
        self._trailer_bytes = 0
        self._discarded_bytes = 0  # of a body, since the response

        self._idle_since: float | None = None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._client = _address(transport.get_extra_info("peername"))
        self._local = _address(transport.get_extra_info("sockname"))
        self.server.connections.add(self)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._keep_alive_timer, self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self.server.write_buffer_limit.remove(self)
        for exchange in self._exchanges:
            exchange.disconnect()
        if self.writable is not None:
            self.writable.set()
            self.writable = None
        # They refer to this object: without them nothing is left to the garbage collector, which
        # would stop all requests for milliseconds. A request that is still handled has its own.
        self._exchanges.clear()
        self._receiving = self._parser = None
        self.server.end_connection(self)

    def shut_down(self) -> None:
        """Close now, or after the response to the last request."""
        if self._exchanges:
            self._exchanges[-1].keep_alive = False
        else:
            self.close()

    def close(self) -> None:
        """Close when the client has read all responses."""
        self.server.flush()
        self.transport.close()

    def abort(self) -> None:
        """Disconnect a slow client: see `WriteBufferLimit`."""
        _log.warning("slow client aborted", buffered=self.transport.get_write_buffer_size())
        self.transport.abort()

    # Exchanges

    def end_exchange(self) -> None:
        """The response to the first request is complete: start the next, or wait for one."""
        self._exchanges.popleft()
        if self.transport.is_closing():
            return
        if self._exchanges:
            self._exchanges[0].start()
        else:
            self._idle_since = self.server.loop.time()
            if self._keep_alive_timer is None:
                self._start_keep_alive_timer(self.server.keep_alive_seconds)
        if self._unparsed and len(self._exchanges) < 2 and not self._is_parse_scheduled:
            self._schedule_parse()
        self.update_reading()

    def update_reading(self) -> None:
        """Read only if there is nothing to parse or to handle first.

        A client that pipelines and never reads its responses would otherwise send thousands of
        requests for each one that is answered; and a body would be buffered that nobody reads.
        """
        receiving = self._receiving
        is_full = (
            bool(self._unparsed)
            or len(self._exchanges) > 1
            or self._has_failed
            or (
                receiving is not None
                and len(receiving.body) > _BODY_BUFFER_BYTES
                and not receiving.is_complete
            )
        )
        if is_full != self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = is_full
            if is_full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _start_keep_alive_timer(self, seconds: float) -> None:
        self._keep_alive_timer = self.server.loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        """Close if no request came in time. While one is handled no timer need run."""
        self._keep_alive_timer = None
        if self._idle_since is not None:
            left = self._idle_since + self.server.keep_alive_seconds - self.server.loop.time()
            if left > 0:
                self._start_keep_alive_timer(left)
            else:
                self.close()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._idle_since = None
        if self._has_failed:
            return
        if self._unparsed or len(data) > _HEAD_PIECE_BYTES:
            self._unparsed += data
            if not self._is_parse_scheduled:
                self._parse_pieces()
        else:
            self._parse(data)
            self.update_reading()

    def _parse_pieces(self) -> None:
        """Parse until a request is queued; `end_exchange` continues. Chunked bodies are parsed in
        small pieces, and after many chunks other connections are read first."""
        self._is_parse_scheduled = False
        while self._unparsed and len(self._exchanges) < 2:
            if self.transport.is_closing() or self._has_failed:
                self._unparsed = b""
                break
            is_plain_body = self._receiving is not None and not self._is_chunked
            size = _BODY_PIECE_BYTES if is_plain_body else _HEAD_PIECE_BYTES
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._parse(piece)
            if self._unparsed and self._chunks > _CHUNKS_AT_ONCE:
                self._schedule_parse()
                break
        self.update_reading()

    def _schedule_parse(self) -> None:
        self._is_parse_scheduled = True
        self.server.loop.call_soon(self._parse_pieces)

    def _parse(self, data: bytes) -> None:
        self._piece_size = size = len(data)
        self._chunks = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # handled as a plain request, the last one
            self._fail(None)
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            is_own = isinstance(cause, KeyhouseError)
            self._fail(cause if is_own else UsageError("Invalid HTTP request."))  # type: ignore[arg-type]
            return
        if self._receiving is not None:
            self._pass_body(self._receiving)
            if not self._check_body(self._receiving, size):
                return
        if self._in_head:
            self._head_received += size
            if self._head_received - self._head_first > HTTP_HEAD_BYTES_MAX:
                self._fail(_head_too_large())
                return
        if self._in_head or not self._exchanges:
            self._start_header_timer()

    def _check_body(self, exchange: Exchange, size: int) -> bool:
        """Return False, and close, if a body takes bytes without content or after its response."""
        if exchange.is_complete:
            self._discarded_bytes += size
            if self._discarded_bytes > HTTP_DISCARD_BYTES_MAX:
                self.close()
                return False
        self._overhead_bytes = 0 if self._chunks else self._overhead_bytes + size
        if self._overhead_bytes > HTTP_HEAD_BYTES_MAX:
            self._fail(_head_too_large())
            return False
        return True

    def _fail(self, error: KeyhouseError | None) -> None:
        """Stop reading, and reject the request that is read, if its client cannot mistake that for
        the response to another one. Close after the responses that are due."""
        self.server.flush()
        self._has_failed = True
        self._unparsed = b""
        receiving = self._receiving
        if self._exchanges and (receiving is None or error is None):
            self._exchanges[-1].keep_alive = False
            return
        if receiving is not None:
            is_due = not receiving.is_complete and not receiving.is_started
            receiving.disconnect()
            if not is_due or len(self._exchanges) > 1:
                error = None
        if error is not None:
            raw_path, headers = b"", []
            if self._in_head:
                raw_path, headers = self._url.partition(b"?")[0], self._headers
            response = self.server.reject(error, raw_path, headers)
            self.transport.write(_encoded(response, self.server.date_line()))
        self.transport.close()

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.server.loop.call_later(
                self.server.header_timeout_seconds, self._header_timed_out
            )

    def _header_timed_out(self) -> None:
        self._header_timer = None
        if self._in_head:
            self._fail(SlowError("The headers were not received in time."))
        else:
            self.close()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_head = True
        self._url = b""
        self._headers = []
        self._head_received = 0
        self._head_first = self._piece_size

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._receiving is None:
            self._headers.append((name.lower(), value))
            return
        # A trailer: never a header (RFC 9110, 6.5.1), and bounded like one.
        self._trailer_bytes += len(name) + len(value) + 4
        if self._trailer_bytes > HTTP_HEAD_BYTES_MAX:
            raise _head_too_large()

    def on_headers_complete(self) -> None:
        headers, parser = self._headers, self._parser
        if (
            self._head_received + self._piece_size > HTTP_HEAD_BYTES_MAX
            and len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers)
            > HTTP_HEAD_BYTES_MAX
        ):
            raise _head_too_large()
        version = parser.get_http_version()
        names = [name for name, _ in headers]
        hosts = names.count(b"host")
        if hosts != 1 and (hosts or version == "1.1"):  # RFC 9112, 3.2: it is ambiguous
            raise UsageError("A request must have one Host header.", hosts=hosts)
        self._is_chunked = b"transfer-encoding" in names
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        server = self.server
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._local,
            "client": self._client,
            "scheme": "http",
            "root_path": server.root_path,
            "headers": headers,
            "method": parser.get_method().decode("ascii"),
            "path": server.root_path + (unquote(path) if "%" in path else path),
            "raw_path": server.raw_root_path + url.path,
            "query_string": url.query or b"",
        }
        exchange = Exchange(
            self,
            scope,
            keep_alive=version != "1.0"
            and parser.should_keep_alive()
            and not self.server.is_draining,
            expects_continue=b"expect" in names and _expects_continue(headers),
        )
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        self._in_head = False
        self._receiving = exchange
        self._overhead_bytes = self._trailer_bytes = self._discarded_bytes = 0
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            exchange.start()

    def on_body(self, body: bytes) -> None:
        self._chunks += 1
        if not self._receiving.is_complete:  # type: ignore[union-attr]  # it has a head
            self._body_parts.append(body)

    def on_message_complete(self) -> None:
        receiving, self._receiving = self._receiving, None
        assert receiving is not None
        self._pass_body(receiving)
        receiving.more_body = False
        receiving.notify()

    def _pass_body(self, exchange: Exchange) -> None:
        """Pass on what was parsed of a body, once for each piece: it may have many chunks."""
        if self._body_parts:
            exchange.body += b"".join(self._body_parts)
            self._body_parts.clear()
            exchange.notify()

    # Writing

    def pause_writing(self) -> None:
        self.writable = asyncio.Event()
        size = self.transport.get_write_buffer_size()
        self._start_write_timer(size)
        if self._exchanges and not self._exchanges[0].is_complete:  # more pieces follow
            size += max(HTTP_STREAM_BYTES, HTTP_STREAM_COPIES * size)
        self.server.write_buffer_limit.add(self, size)

    def resume_writing(self) -> None:
        self.server.write_buffer_limit.remove(self)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self.writable is not None:
            self.writable.set()
            self.writable = None

    def _start_write_timer(self, size: int) -> None:
        self._write_timer = self.server.loop.call_later(
            self.server.write_timeout_seconds, self._check_progress, size
        )

    def _check_progress(self, before: int) -> None:
        """Abort if the client has read nothing; a slow client continues."""
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._start_write_timer(size)
        else:
            self._write_timer = None
            self.transport.abort()


def _address(name: Any) -> tuple[str, int] | None:
    return (name[0], name[1]) if isinstance(name, tuple) else None


def _expects_continue(headers: HeaderPairs) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def _head_too_large() -> HeadError:
    return HeadError(
        "The headers are too large: send fewer, or shorter ones.", limit=HTTP_HEAD_BYTES_MAX
    )


def _encoded(response: EncodedResponse, date_line: bytes) -> bytes:
    """Return a rejection as it is sent, with `Connection: close`."""
    body = response.body
    assert isinstance(body, bytes)
    headers = dict(response.headers)
    headers[b"content-length"] = b"%d" % len(body)
    headers[b"connection"] = b"close"
    lines = b"".join([b"%b: %b\r\n" % header for header in headers.items()])
    return b"%b%b%b\r\n%b" % (STATUS_LINES[response.status], date_line, lines, body)
