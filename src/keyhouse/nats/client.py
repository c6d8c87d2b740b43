"""The NATS client: one subclass of nats-py's, for the engine, the service and the command line.

It differs from nats-py in seven ways:

- URLs are read as NATS's own tools read them: `tls://user:p%40ss@one:4222,two:4222` uses TLS and
  the same user at every server, also at discovered ones. nats-py uses TLS only where the server
  asks for it, so that an attacker on the path could remove the request and receive the password.
- Bytes from the server are parsed by `keyhouse.nats.parser.Parser`. A subject with a form feed in
  it, or one that is not UTF-8, ends neither the connection nor the reading: any client may send
  such subjects.
- A handler (`handle`) receives messages as they are read, without a step of the reading task if
  there is nothing else in the bytes (`FeedingReader`). nats-py puts each message in a queue
  that a task per subscription reads, and a publish passes two coroutines: together half the cost of
  a request that is answered from memory. `try_publish` appends to the same buffer without them.
- Headers are parsed without a check per character, which costs as much as all other receiving.
- A first line that is not the greeting of a NATS server raises NotNatsError and does not stop the
  reconnecting; connections that failed are closed.
- It reconnects after any error that ends the connection, such as `authorization violation` while
  the server's users are changed. nats-py closes the client for good.
- With `raise_denied`, a request that the server's permissions forbid raises PermissionDeniedError.
  The server reports it beside the request, so nats-py waits for a reply until the timeout.

Private names of nats-py in use (checked by `tests/nats/test_private_names.py`):

| name | why |
|---|---|
| `_ps` | `Parser` replaces nats-py's parser |
| `_process_msg`, `_process_err`, `_process_ping`, `_process_pong` | `Parser` calls them |
| `_process_op_err`, `_error_cb` | `_process_err`: reports the error, and reconnects |
| `_process_headers` | overridden: faster, and malformed headers raise nothing |
| `_process_info` | overridden: TLS is required |
| `_process_connect_init` | overridden: a first line that is not NATS |
| `_connect_command`, `_current_server`, `_server_pool` | the user of the URL, percent-decoded |
| `_parse_server_uri` | an invalid address is rejected before connecting |
| `_transport` | `_Transport` replaces it: closes connections that failed |
| `TcpTransport._io_reader`, `TcpTransport._io_writer` | `_Transport` opens and closes them |
| `TcpTransport._bare_io_reader`, `TcpTransport._bare_io_writer` | the same before TLS |
| `_close`, `_pending`, `_pending_data_size` | overridden: writes nothing to a closed connection |
| `_flush_queue`, `_flusher_task`, `_status`, `_max_payload` | `try_publish`, `wait_for_space` |
| `_pongs`, `_pongs_received`, `_pings_outstanding` | `_process_pong`: a pong that comes too late |
| `_sid` | the handler is registered before its first message |
| `_reconnection_task` | `_close`: nats-py may leave it running |
| `_reading_task` | `is_reading`: nats-py stops reading at an unexpected error and stays connected |

It imports no schema, and logs only through the logger that it is given.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import Error

from keyhouse.errors import UsageError
from keyhouse.nats.errors import (
    UNENCRYPTED,
    ClosedByServerError,
    NotNatsError,
    PermissionDeniedError,
    UnencryptedError,
)
from keyhouse.nats.parser import MessageHandler, Parser, RawHandler

__all__ = ["HandlerSubscription", "Logger", "MessageHandler", "NatsClient", "RawHandler"]

PENDING_BYTES_MAX: Final = 8 * 1_024 * 1_024
"""Bytes that wait to be sent, before `try_publish` returns False and `wait_for_space` waits."""

SPACE_CHECK_SECONDS: Final = 1
"""Interval at which `wait_for_space` checks that the connection still exists."""

STARTED_PER_TURN: Final = 32
QUEUED_PER_TURN: Final = 256
"""Messages per turn of the event loop that handlers started to handle, or only queued. Then other
tasks run, and replies are flushed."""

PERMISSION_CHECK_SECONDS: Final = 10

CANCEL_SECONDS: Final = 0.1
"""Time after which a task that does not end is cancelled again."""

_KEEPS_CONNECTION: Final = ("permissions violation", "maximum subscriptions exceeded")
_HEADER_VERSION_BYTES: Final = len(b"NATS/1.0")

Handler = TypeVar("Handler")


class Logger(Protocol):
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class HandlerSubscription(NamedTuple):
    subscription: Subscription
    sid: bytes
    """The subscription's number, as the server sends it."""


class NatsClient(Client):
    """Use it as nats-py's own client; `handle`, `try_publish` and `wait_for_space` are added."""

    def __init__(self, *, log: Logger | None = None, raise_denied: bool = False) -> None:
        super().__init__()
        self._ps = Parser(self)  # type: ignore[assignment]  # it has the two methods in use
        self._transport = _Transport(self._ps.feed)  # type: ignore[attr-defined]
        self.handlers: dict[bytes, MessageHandler] = {}
        """By the number of the subscription, as the server sends it."""
        self.raw_handlers: dict[bytes, RawHandler] = {}
        self.dropped = 0
        self._log = log
        self._logged_at = float("-inf")
        self._turn_share = 0
        self._greeted = False
        self.has_headers = False
        """True if the server supports headers."""
        self._uses_url_user = True
        self._denied: PermissionDeniedError | None = None
        self._denial = asyncio.Event() if raise_denied else None
        self._request_lock = asyncio.Lock()

    # Connecting

    async def connect(  # type: ignore[override]  # its other 40 parameters are `options`
        self, servers: str | list[str] = "nats://localhost:4222", **options: Any
    ) -> None:
        """Connect as nats-py does. Servers without a scheme have that of the first one. Raises
        UsageError for an invalid address."""
        urls = [servers] if isinstance(servers, str) else servers
        scheme = urls[0].partition("://")[0] if urls and "://" in urls[0] else "nats"
        urls = [url if "://" in url else f"{scheme}://{url}" for url in urls]
        for url in urls:
            self._check_address(url)
        self._uses_url_user = not (options.get("user_credentials") or options.get("nkeys_seed"))
        if self._denial is not None:
            options["error_cb"] = self._note_denial(options.get("error_cb"))
        await super().connect(urls, **options)

    def _check_address(self, url: str) -> None:
        try:
            self._parse_server_uri(url)
        except Error:
            raise UsageError(
                "Invalid address of a NATS server: it is like nats://127.0.0.1:4222.",
                server=url.rpartition("@")[2],
            ) from None

    async def _process_connect_init(self) -> None:
        """Raise NotNatsError for anything but a NATS server; nats-py has no type for that.

        Exceptions that nats-py does not expect would end its reconnecting.
        """
        self._greeted = False
        try:
            await super()._process_connect_init()
        except Exception as error:
            if isinstance(error, OSError) or (isinstance(error, Error) and self._greeted):
                raise
            raise NotNatsError(str(error)) from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        self._greeted = True
        self.has_headers = bool(info.get("headers"))
        if initial_connection and server is not None and server.uri.scheme == "tls":
            if not (info.get("tls_required") or info.get("tls_available")):
                raise UnencryptedError(UNENCRYPTED)
            info["tls_required"] = True  # nats-py reads it after this
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """Name the user of the server's URL, or else the first user that any URL names."""
        if self._uses_url_user:
            for server in (self._current_server, *self._server_pool):
                if server is not None and server.uri.username is not None:
                    user, password = server.uri.username, server.uri.password
                    names = (
                        {"token": user}
                        if password is None
                        else {"user": user, "password": password}
                    )
                    self.options |= {name: unquote(value) for name, value in names.items()}
                    break
        return super()._connect_command()

    async def _process_err(self, err_msg: str) -> None:
        if self._status != Client.CONNECTED or "stale connection" in err_msg:
            await super()._process_err(err_msg)
            return
        text = "nats: " + err_msg.strip("'")
        if any(each in err_msg for each in _KEEPS_CONNECTION):
            await self._error_cb(Error(text))
            return
        if self._current_server is not None:  # wait before the next attempt: it may end like this
            self._current_server.last_attempt = time.monotonic()
        await self._error_cb(error := ClosedByServerError(text))
        await self._process_op_err(error)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Drop what is pending if the connection is gone: uvloop raises on a write to it."""
        if self._flush_queue is None:  # it was never connected
            return
        if not self.is_connected or (
            isinstance(self._transport, _Transport) and self._transport.is_closing
        ):
            self._pending, self._pending_data_size = [], 0
        if status == Client.CLOSED:
            await self._stop_reconnecting()
        await super()._close(status, do_cbs)

    async def _stop_reconnecting(self) -> None:
        """Cancel the reconnecting until it ends: `wait_for` of Python 3.11 loses a cancellation
        that comes at the same time as its result, and a closed client would connect again."""
        task = self._reconnection_task
        while task is not None and not task.done() and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_SECONDS)

    @property
    def is_reading(self) -> bool:
        return self._reading_task is not None and not self._reading_task.done()

    # Receiving

    async def handle(
        self, subject: str, queue: str, handler: MessageHandler
    ) -> HandlerSubscription:
        """Subscribe. `handler` receives the messages in order, also after a reconnect."""
        return await self._subscribe(self.handlers, subject, queue, handler)

    async def handle_raw(self, subject: str, handler: RawHandler) -> HandlerSubscription:
        """Subscribe as `handle` does, to messages with headers, at the least cost per message."""
        return await self._subscribe(self.raw_handlers, subject, "", handler)

    async def _subscribe(
        self, handlers: dict[bytes, Handler], subject: str, queue: str, handler: Handler
    ) -> HandlerSubscription:
        number = self._sid + 1  # of the next subscription; a message may come before it is returned
        sid = b"%d" % number
        handlers[sid] = handler
        try:
            subscription = await self.subscribe(subject, queue=queue, cb=_not_called)
        except Error:
            if self._sid < number:  # not subscribed: the next subscription has this number
                del handlers[sid]
            raise
        return HandlerSubscription(subscription, sid)

    async def unsubscribe(self, handled: HandlerSubscription) -> None:
        """Unsubscribe. Messages that the server has already sent are dropped."""
        self.handlers.pop(handled.sid, None)
        self.raw_handlers.pop(handled.sid, None)
        with suppress(Error):
            await handled.subscription.unsubscribe()

    async def unsubscribe_drained(self, *handled: HandlerSubscription) -> None:
        """Unsubscribe. Messages that the server has already sent are still handled."""
        for each in handled:
            await each.subscription.unsubscribe()
        await self.flush_all()
        for each in handled:
            self.handlers.pop(each.sid, None)

    async def _process_pong(self) -> None:
        """nats-py's raises, and ends the reading, if the flush of this pong timed out meanwhile."""
        if self._pongs:
            future = self._pongs.pop(0)
            if not future.done():
                future.set_result(True)
            self._pongs_received += 1
            self._pings_outstanding = 0

    async def flush_all(self) -> None:
        """Wait until the server has received everything that was published.

        nats-py's `flush` sends its ping ahead of pending messages. They are sent before the first
        ping is answered, so the second ping comes after them.
        """
        await self.flush()
        await self.flush()

    def deliver(self, handler: MessageHandler, subject: bytes, reply: bytes, data: bytes) -> bool:
        """Call a handler. Returns whether other tasks should run before the next message."""
        stats = self.stats
        stats["in_msgs"] += 1
        stats["in_bytes"] += len(data)
        started: bool | None = False
        try:
            started = handler(subject.decode(), reply.decode(), data)
        except UnicodeDecodeError:
            self.drop()
        except Exception as error:  # would end the reading, and with it the service
            if self._log is not None:
                text = subject.decode(errors="replace")
                self._log.error("nats message lost", subject=text, exc_info=error)
        return self._takes_turn(QUEUED_PER_TURN // STARTED_PER_TURN if started else 1)

    def deliver_raw(
        self, handler: RawHandler, subject: bytes, reply: bytes, headers: bytes, data: bytes
    ) -> bool:
        """Call a raw handler. Returns whether other tasks should run before the next message."""
        try:
            handler(subject, reply, headers, data)
        except Exception as error:  # as in `deliver`
            if self._log is not None:
                text = subject.decode(errors="replace")
                self._log.error("nats message lost", subject=text, exc_info=error)
        return self._takes_turn(1)

    def _takes_turn(self, share: int) -> bool:
        self._turn_share += share
        if self._turn_share < QUEUED_PER_TURN:
            return False
        self._turn_share = 0
        return True

    def drop(self) -> None:
        """Count a message whose subject cannot be decoded. Logs at most once a second."""
        self.dropped += 1
        if self._log is not None and (now := time.monotonic()) - self._logged_at >= 1:
            self._logged_at = now
            self._log.warning(
                "nats message dropped", reason="a subject that is not UTF-8", dropped=self.dropped
            )

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Parse headers, with the status of the first line as `Status` and `Description`."""
        if not headers:
            return None
        first, _, lines = headers.decode("utf-8", "replace").partition("\r\n")
        parsed: dict[str, str] = {}
        status, _, description = first[_HEADER_VERSION_BYTES:].strip().partition(" ")
        if status.isdigit():
            parsed["Status"] = status
        if description:
            parsed["Description"] = description
        for line in lines.split("\r\n"):
            name, colon, value = line.partition(":")
            if colon:
                parsed[name.strip()] = value.strip()
        return parsed or None

    # Sending

    def try_publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> bool:
        """Publish if nothing has to be waited for; returns whether it did. Else use `publish`.

        The subject must be one that the server sent: it is not checked for spaces and line ends.
        Neither are the headers.
        """
        if headers is None or not self.has_headers:
            line = b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data)
        else:
            lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            head = b"NATS/1.0\r\n%b\r\n" % lines.encode()
            sizes = b"%d %d" % (len(head), len(head) + len(data))
            line = b"HPUB %b %b\r\n%b%b\r\n" % (subject.encode(), sizes, head, data)
        flusher = self._flusher_task
        if (
            self._status != Client.CONNECTED
            or self._flush_queue is None
            or flusher is None
            or flusher.done()
        ):
            return False
        if len(data) > self._max_payload or self._pending_data_size + len(line) > PENDING_BYTES_MAX:
            return False
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(data)
        self._pending.append(line)
        self._pending_data_size += len(line)
        if self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    def has_space(self, bytes_max: int) -> bool:
        """Return whether no more than `bytes_max` is pending."""
        return self._pending_data_size <= bytes_max

    async def wait_for_space(self, bytes_max: int = PENDING_BYTES_MAX) -> None:
        """Wait while more than `bytes_max` is pending and the server is connected.

        nats-py buffers without a limit: many small requests for large values would fill the memory.
        """
        while self._pending_data_size > bytes_max and self._status == Client.CONNECTED:
            flusher = self._flusher_task
            if self._flush_queue is None or flusher is None or flusher.done():
                return
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(SPACE_CHECK_SECONDS):
                    await self._flush_queue.put(flushed)
                    await flushed

    # Permissions

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Request as nats-py does. With `raise_denied`, one request at a time: the server does not
        say which of several it denied."""
        asked = super().request(subject, payload, timeout, old_style, headers)
        if self._denial is None:
            return await asked
        async with self._request_lock:
            return await self._until_denied(asked, self._denial)

    async def check_inbox(self) -> None:
        """Raise PermissionDeniedError if replies could not be received."""
        inbox = await self.subscribe(f"{self.new_inbox()}.*")
        await self.flush_all()
        self._raise_denied()
        await inbox.unsubscribe()

    async def _until_denied(self, asked: Coroutine[Any, Any, Msg], denial: asyncio.Event) -> Msg:
        reply = asyncio.ensure_future(asked)
        denied = asyncio.ensure_future(denial.wait())
        try:
            await asyncio.wait((reply, denied), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                self._raise_denied()
            return await reply
        finally:
            reply.cancel()
            denied.cancel()

    def _note_denial(self, error_cb: Any) -> Any:
        """Record permission errors, which leave the connection open and have no specific type."""

        async def note(error: Exception) -> None:
            if type(error) is Error and self.is_connected and self._denial is not None:
                self._denied = PermissionDeniedError(str(error))
                self._denial.set()
            if error_cb is not None:
                await error_cb(error)

        return note

    def _raise_denied(self) -> None:
        denied, self._denied = self._denied, None
        if denied is not None and self._denial is not None:
            self._denial.clear()
            raise denied


READ_BYTES: Final = 256 * 1_024
"""Read from the socket per turn of the event loop. A connection is read in order, so a flood of one
tenant delays others on the same connection by the turns it takes to read it."""


class FeedingReader(asyncio.StreamReader):
    """Passes bytes to `feed` at once if a task waits for them, and only the rest to the task.

    To wake that task costs as much as to parse several messages.
    """

    def __init__(self, feed: Callable[[bytes], bytes], **options: Any) -> None:
        super().__init__(**options)
        self._feed = feed
        self._is_awaited = False  # a task waits in `read`: nothing is buffered

    async def read(self, n: int = -1) -> bytes:
        self._is_awaited = True
        try:
            return await super().read(n)
        finally:
            self._is_awaited = False

    def feed_data(self, data: Any) -> None:
        if self._is_awaited:
            data = self._feed(data)
        if data:
            self._is_awaited = False
            super().feed_data(data)


class _Transport(TcpTransport):
    """Closes its connection before it opens the next, and one whose TLS handshake failed."""

    def __init__(self, feed: Callable[[bytes], bytes]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._feed = feed

    @property
    def is_closing(self) -> bool:
        return self._io_writer is None or self._io_writer.is_closing()

    def __bool__(self) -> bool:
        return True  # otherwise nats-py creates another transport

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        self.close()  # type: ignore[no-untyped-call]
        loop = asyncio.get_running_loop()
        reader = FeedingReader(self._feed, limit=READ_BYTES // 2, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(connect_timeout):
            transport, _ = await loop.create_connection(lambda: protocol, uri.hostname, uri.port)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def connect_tls(
        self, uri: Any, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """The protocol of a plain connection is not called once TLS has replaced it: `wait_closed`
        would wait forever, so a failed handshake leaves no writer."""
        assert self._io_writer is not None
        plain, self._io_reader, self._io_writer = self._io_writer.transport, None, None
        loop = asyncio.get_running_loop()
        reader = FeedingReader(self._feed, limit=READ_BYTES // 2, loop=loop)
        protocol = _TlsProtocol(reader, loop=loop)
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(
                plain,
                protocol,
                ssl_context,
                server_hostname=uri if isinstance(uri, str) else uri.hostname,
            )
        assert transport is not None
        reader.set_transport(transport)  # nats-py does not, and reads ahead without a limit
        self._io_reader = reader
        self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)

    async def read(self, buffer_size: int) -> bytes:
        data: bytes = await super().read(READ_BYTES)
        return data


class _TlsProtocol(asyncio.StreamReaderProtocol):
    def eof_received(self) -> bool:
        """Return False: TLS has no half-closed connections, and asyncio warns of one."""
        super().eof_received()
        return False


async def _not_called(message: Msg) -> None:
    """nats-py needs a callback; `Parser` calls the handler instead."""
    raise AssertionError(message)
