"""The connection, and requests on it. Knows messages and answers; knows no row.

Two ways in which a message that nobody waits for any more could still be written are closed here and in `writer`. The
driver keeps what is published while it is disconnected and sends it later, unless its buffer has no room: it has none.
What had been handed to the socket when the connection broke may still arrive; it carries what it expects, so it is refused
if anything was written since.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
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
from keyhouse.nats.client import NatsClient
from keyhouse.nats.credentials import sign_in
from keyhouse.nats.errors import is_permanent, unreachable

VERSION_NEEDED: Final = "2.12.0"
"""The first server that commits a batch of messages at once."""

MESSAGE_BYTES_NEEDED: Final = VALUE_BYTES_MAX + 16 * 1_024
"""The server's `max_payload` must hold a value and its headers."""

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
"""How long an answer is waited for, before its outcome is unknown."""

API_SECONDS: Final = 2.5
"""The same, for what may be asked again: a leader that is chosen meanwhile does not hear what was asked before."""

PING_SECONDS: Final = 3
PINGS_UNANSWERED_MAX: Final = 2
"""A server that hangs is left after about three times that."""

RECONNECT_SECONDS: Final = 0.1

_NO_ROOM: Final = -1
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Connection:
    """`lost` is called when the connection breaks."""

    def __init__(self, settings: Settings, *, on_disconnect: Callable[[], None]) -> None:
        self._settings = settings
        self._on_disconnect = on_disconnect
        self._client = NatsClient()
        self._waiting: dict[
            str, asyncio.Future[Msg | None]
        ] = {}  # nothing comes, when the connection breaks
        self._asked = 0
        self._inbox = ""
        self._trouble: Exception | None = None
        self._opening: asyncio.Timeout | None = None
        self._closed = False
        self._reopening: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    @property
    def version(self) -> str:
        """Of the server that it is connected to."""
        found = self._client.connected_server_version
        return f"{found.major}.{found.minor}.{found.patch}"

    async def open(self) -> None:
        """Connect, or say why that can't be; then it can be called again."""
        client = NatsClient()
        self._trouble = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as self._opening:
                await self._connect(client)
                self._check(client)
                self._inbox = client.new_inbox()
                await client.subscribe(f"{self._inbox}.*", cb=self._answered)
        except (NatsError, OSError) as error:  # TimeoutError is an OSError
            await _end(client)
            raise unreachable(self._settings.address, self._heard() or error) from error
        except BaseException:
            await _end(client)
            raise
        finally:
            self._opening = None
        self._client = client

    async def close(self) -> None:
        self._closed = True
        if self._reopening is not None:
            self._reopening.cancel()
        await _end(self._client)
        self._break_off()

    async def request(self, messages: Sequence[Message], *, seconds: float = ANSWER_SECONDS) -> Msg:
        """Send all, and wait for the answer to the last. `UnavailableError`: that one was not sent, or had no receiver."""
        if self._closed:
            raise ClosedError("The engine is closed.")
        self._asked += 1
        token = str(self._asked)
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            await self._send(messages, f"{self._inbox}.{token}")
            async with asyncio.timeout(seconds):
                message = await answer
        except TimeoutError:
            raise reply_timeout(seconds) from None
        finally:
            self._waiting.pop(token, None)
        if message is None:
            raise connection_lost()
        if message.headers is not None and message.headers.get("Status") == "503":
            raise no_responders()
        return message

    async def find_jetstream(self, subject: str) -> bool:
        """Ask a first thing of JetStream's API; whether what it asks for is there."""
        try:
            return await until_available(lambda: self.api(subject)) is not None
        except NoResponders:
            raise no_jetstream(self._settings.address) from None

    async def api(self, subject: str, /, **body: object) -> dict[str, Any] | None:
        """A request of JetStream's API that may be made twice. `None`: what it asks for is not there."""
        payload = msgspec.json.encode(body) if body else b""
        answer = _decode((await self._api_request(subject, payload)).data)
        if "error" not in answer:
            return answer
        refusal = msgspec.convert(answer["error"], ApiError)
        if refusal.err_code in ABSENT:
            return None
        raise translate(refusal)

    async def get_direct(self, stream: str, sequence: int) -> Msg | None:
        """A message by its sequence, from any replica: `None` also where that one is behind."""
        answer = await self._api_request(
            f"DIRECT.GET.{stream}", msgspec.json.encode({"seq": sequence})
        )
        return None if answer.headers is not None and "Status" in answer.headers else answer

    async def request_many(self, subject: str, /, **body: object) -> list[Msg]:
        """A request of JetStream's API that is answered with messages, and then with one that says it was the last."""
        found: list[Msg] = []
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def receive(message: Msg) -> None:
            status = None if message.headers is None else message.headers.get("Status")
            if status is None:
                found.append(message)
            elif not end.done():
                end.set_result(status)

        inbox = self.new_inbox()
        subscription = await self.subscribe(inbox, receive)
        try:
            await self._send([Message(f"$JS.API.{subject}", msgspec.json.encode(body), {})], inbox)
            async with asyncio.timeout(API_SECONDS):
                status = await end
        except TimeoutError:
            raise no_reply(subject, self._heard()) from None
        finally:
            await self.unsubscribe(subscription)
        if status not in ("204", "404"):
            raise no_responders()
        return found

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def subscribe(
        self, subject: str, receive: Callable[[Msg], Awaitable[None]]
    ) -> Subscription:
        try:
            return await self._client.subscribe(
                subject, cb=receive, pending_msgs_limit=_NO_ROOM, pending_bytes_limit=_NO_ROOM
            )
        except NatsError as error:
            raise not_connected(error) from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        with suppress(NatsError):
            await subscription.unsubscribe()

    async def publish_empty(self, subject: str) -> None:
        """An empty message that nobody answers."""
        with suppress(NatsError):
            await self._client.publish(subject)

    async def _connect(self, client: NatsClient) -> None:
        credentials = self._settings.credentials
        await client.connect(
            servers=list(self._settings.servers),
            name="keyhouse",
            error_cb=self._troubled,
            disconnected_cb=self._disconnected,
            closed_cb=self._dropped,
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
                "The NATS server takes no message as large as a value may be; raise its max_payload.",
                max_payload=client.max_payload,
                needed=MESSAGE_BYTES_NEEDED,
            )

    async def _send(self, messages: Sequence[Message], reply: str) -> None:
        publish = self._client.publish
        try:
            for message in messages[:-1]:
                await publish(message.subject, message.value, headers=message.headers)
            last = messages[-1]
            await publish(last.subject, last.value, reply, last.headers or None)
        except NatsError as error:
            raise not_connected(error) from error

    async def _api_request(self, subject: str, payload: bytes) -> Msg:
        self._trouble = None
        try:
            return await self.request(
                [Message(f"$JS.API.{subject}", payload, {})], seconds=API_SECONDS
            )
        except UnknownOutcomeError as error:
            raise no_reply(subject, self._heard()) from error

    async def _answered(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _troubled(self, error: Exception) -> None:
        if self._opening is None:
            self._trouble = error
        elif is_permanent(error):  # which the driver answers by asking again and again
            self._trouble = error
            with suppress(RuntimeError):  # it is over already
                self._opening.reschedule(asyncio.get_running_loop().time() + RECONNECT_SECONDS / 2)
        elif self._trouble is None or not is_permanent(
            self._trouble
        ):  # a refused connection is often cut off besides
            self._trouble = error

    async def _disconnected(self) -> None:
        self._break_off()
        self._on_disconnect()

    async def _dropped(self) -> None:
        """The driver has given up for good, as it does when a server sends an error that it does not know."""
        if not self._closed and self._client.is_closed:
            self._reopening = asyncio.ensure_future(self._reopen())

    async def _reopen(self) -> None:
        while not self._closed:
            try:
                await self.open()
            except KeyhouseError:
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                return

    def _heard(self) -> Exception | None:
        """What went wrong beside the last request, or while connecting."""
        return self._trouble

    def _break_off(self) -> None:
        """Whoever waits is told that nothing comes. Not by an error: where sending fails as well, nobody looks at that, and
        the loop would log it."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)


async def _end(client: NatsClient) -> None:
    with suppress(NatsError, OSError, AssertionError):  # the last: it never came to connect
        await client.close()
