"""The connection to NATS and requests on it. Knows messages and replies, not rows.

A message whose caller has given up must not be written later. There are two ways it could be. The
driver buffers messages while it is disconnected and sends them afterwards: its buffer size is set
to 0. Messages in the socket when the connection broke may still arrive: they carry the sequence
that they expect (see `writer`), so the server rejects them if anything was written since.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from nats.errors import Error as NatsError

from keyhouse.engines.jetstream.error_map import (
    ABSENT,
    ApiError,
    NoResponders,
    connection_lost,
    no_jetstream,
    no_reply,
    no_responders,
    not_connected,
    reply_timeout,
    server_too_old,
    translate,
)
from keyhouse.engines.jetstream.message import Message
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.engines.jetstream.settings import Settings
from keyhouse.errors import ClosedError, KeyhouseError, UnknownOutcomeError, UsageError
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.nats.client import HandlerSubscription, NatsClient, RawHandler
from keyhouse.nats.credentials import sign_in
from keyhouse.nats.errors import is_permanent, reported_cause, unreachable

VERSION_NEEDED: Final = "2.12.0"
"""The first server with atomic batches."""

MESSAGE_BYTES_NEEDED: Final = VALUE_BYTES_MAX + 16 * 1_024
"""The server's `max_payload` must fit a value and its headers."""

CONNECT_SECONDS: Final = 5.0
REPLY_SECONDS: Final = 5.0
"""Timeout of a commit; after it, the outcome is unknown."""

API_SECONDS: Final = 2.5
"""Timeout of requests that are safe to repeat: a newly elected leader never saw the first one."""

REPEAT_SECONDS: Final = 0.25
"""Interval at which a request is sent again that its leader answers at once, or not at all: while
a leader is elected, requests are lost."""

_REPEATED: Final = ("STREAM.INFO.", "STREAM.MSG.GET.", "CONSUMER.CREATE.")

PING_SECONDS: Final = 3
PINGS_UNANSWERED_MAX: Final = 2
"""A server that hangs is dropped after about three ping intervals."""

RECONNECT_SECONDS: Final = 0.1

_NO_RESPONDERS: Final = b"NATS/1.0 503"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Reply(NamedTuple):
    headers: bytes
    data: bytes

    @property
    def has_status(self) -> bool:
        """True for a reply that is not a message: the request failed."""
        return self.headers.startswith(b"NATS/1.0 ")


class Connection:
    """`on_disconnect` is called when the connection is lost."""

    def __init__(self, settings: Settings, *, on_disconnect: Callable[[], None]) -> None:
        self._settings = settings
        self._on_disconnect = on_disconnect
        self.client = NatsClient()
        self._pending: dict[
            bytes, asyncio.Future[Reply | None]
        ] = {}  # None: the connection was lost
        self._requests = 0
        self._inbox = ""
        self._reported: Exception | None = None
        self._opening: asyncio.Timeout | None = None
        self._closed = False
        self._reopening: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def version(self) -> str:
        """Version of the connected server."""
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    async def open(self) -> None:
        """Connect, or raise; a failed call may be repeated."""
        client = NatsClient()
        self._reported = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as self._opening:
                await self._connect(client)
                self._check(client)
                self._inbox = client.new_inbox()
                await client.handle_raw(f"{self._inbox}.*", self._on_reply)
        except (NatsError, OSError) as error:  # TimeoutError is an OSError
            await _close_quietly(client)
            raise unreachable(self._settings.address, self._reported_error() or error) from error
        except BaseException:
            await _close_quietly(client)
            raise
        finally:
            self._opening = None
        self.client = client

    async def close(self) -> None:
        self._closed = True
        if self._reopening is not None:
            self._reopening.cancel()
        await _close_quietly(self.client)
        self.abandon_pending()

    async def request(
        self,
        messages: Sequence[Message],
        *,
        seconds: float = REPLY_SECONDS,
        repeat_seconds: float | None = None,
    ) -> Reply:
        """Publish all messages, again every `repeat_seconds`, and return the reply to the last.

        Raises UnavailableError if the last one was not sent or had no receiver, and
        UnknownOutcomeError if no reply arrived.
        """
        if self._closed:
            raise ClosedError("The engine is closed.")
        self._requests += 1
        token = b"%d" % self._requests
        reply: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._pending[token] = reply
        deadline = time.monotonic() + seconds
        try:
            while not reply.done() and (remaining := deadline - time.monotonic()) > 0:
                await self.send(messages, f"{self._inbox}.{token.decode()}")
                await asyncio.wait([reply], timeout=min(remaining, repeat_seconds or remaining))
            if not reply.done():
                raise reply_timeout(seconds)
            answer = reply.result()
        finally:
            self._pending.pop(token, None)
        if answer is None:
            raise connection_lost()
        if answer.headers.startswith(_NO_RESPONDERS):
            raise no_responders()
        return answer

    async def find_jetstream(self, subject: str) -> bool:
        """Make a first API request; return whether the requested object exists."""
        try:
            return await until_available(lambda: self.api(subject)) is not None
        except NoResponders:
            raise no_jetstream(self._settings.address) from None

    async def api(self, subject: str, /, **body: object) -> dict[str, Any] | None:
        """Make an idempotent JetStream API request; return None if the object does not exist."""
        payload = msgspec.json.encode(body) if body else b""
        reply = _decode((await self._api_request(subject, payload)).data)
        if "error" not in reply:
            return reply
        error = msgspec.convert(reply["error"], ApiError)
        if error.err_code in ABSENT:
            return None
        raise translate(error)

    async def get_direct(self, stream: str, sequence: int) -> bytes | None:
        """Return the data of a message from any replica, or None if missing there: it may lag."""
        reply = await self._api_request(
            f"DIRECT.GET.{stream}", msgspec.json.encode({"seq": sequence})
        )
        return None if reply.has_status else reply.data

    def new_inbox(self) -> str:
        return self.client.new_inbox()

    async def subscribe(self, subject: str, handler: RawHandler) -> HandlerSubscription:
        try:
            return await self.client.handle_raw(subject, handler)
        except NatsError as error:
            raise not_connected(error) from error

    async def unsubscribe(self, subscription: HandlerSubscription) -> None:
        await self.client.unsubscribe(subscription)

    def publish_empty(self, subject: str) -> None:
        """Publish an empty message without a reply, unless the connection is lost or busy."""
        self.client.try_publish(subject, b"")

    async def _connect(self, client: NatsClient) -> None:
        credentials = self._settings.credentials
        await client.connect(
            servers=list(self._settings.servers),
            name="keyhouse",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            closed_cb=self._on_closed,
            connect_timeout=2,
            reconnect_time_wait=RECONNECT_SECONDS,
            max_reconnect_attempts=-1,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
            pending_size=0,
            **({} if credentials is None else sign_in(credentials)),
        )

    def _check(self, client: NatsClient) -> None:
        version = client.connected_server_version
        if (version.major, version.minor, version.patch) < tuple(
            map(int, VERSION_NEEDED.split("."))
        ):
            raise server_too_old(f"{version.major}.{version.minor}.{version.patch}", VERSION_NEEDED)
        if client.max_payload < MESSAGE_BYTES_NEEDED:
            raise UsageError(
                "The max_payload of the NATS server is below the largest value; raise it.",
                max_payload=client.max_payload,
                needed=MESSAGE_BYTES_NEEDED,
            )

    async def send(self, messages: Sequence[Message], reply: str) -> None:
        """Publish all messages, the last with a reply subject. Raises UnavailableError if it was
        not sent."""
        publish = self.client.publish
        try:
            for message in messages[:-1]:
                await publish(message.subject, message.value, headers=message.headers)
            last = messages[-1]
            await publish(last.subject, last.value, reply, last.headers or None)
        except NatsError as error:
            raise not_connected(error) from error

    async def _api_request(self, subject: str, payload: bytes) -> Reply:
        self._reported = None
        try:
            return await self.request(
                [Message(f"$JS.API.{subject}", payload, {})],
                seconds=API_SECONDS,
                repeat_seconds=REPEAT_SECONDS if subject.startswith(_REPEATED) else None,
            )
        except UnknownOutcomeError as error:
            raise no_reply(subject, self._reported_error()) from error

    def _on_reply(self, subject: bytes, _: bytes, headers: bytes, data: bytes) -> None:
        reply = self._pending.get(subject.rpartition(b".")[2])
        if reply is not None and not reply.done():
            reply.set_result(Reply(headers, data))

    async def _on_error(self, error: Exception) -> None:
        if self._opening is None:
            self._reported = error
            return
        self._reported = reported_cause(self._reported, error)
        if is_permanent(error):  # the driver would retry it forever
            with suppress(RuntimeError):  # the timeout has fired
                self._opening.reschedule(asyncio.get_running_loop().time() + RECONNECT_SECONDS / 2)

    async def _on_disconnected(self) -> None:
        self.abandon_pending()
        self._on_disconnect()

    async def _on_closed(self) -> None:
        """Reopen: the driver closes for good when a server sends an error that it does not know."""
        if not self._closed and self.client.is_closed:
            self._reopening = asyncio.ensure_future(self._reopen())

    async def _reopen(self) -> None:
        while not self._closed:
            try:
                await self.open()
            except KeyhouseError:
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                return

    def _reported_error(self) -> Exception | None:
        """Return the last error that the driver reported outside of a request."""
        return self._reported

    def abandon_pending(self) -> None:
        """Complete all pending requests with None: no reply will come.

        Not with an exception: if sending fails as well, nobody retrieves it and the loop logs it.
        """
        for reply in self._pending.values():
            if not reply.done():
                reply.set_result(None)


async def _close_quietly(client: NatsClient) -> None:
    with suppress(NatsError, OSError, AssertionError):  # AssertionError: it never connected
        await client.close()
