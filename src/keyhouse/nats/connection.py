"""The connection to NATS: made again whenever it breaks, for as long as it takes, and each time said."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from keyhouse.errors import UnavailableError
from keyhouse.nats.driver import NatsDriver, unfit
from keyhouse.nats.errors import is_hopeless, is_refusal
from keyhouse.nats.fast_parser import Parser

CONNECT_SECONDS: Final = 5
RECONNECT_SECONDS: Final = 0.5
PING_SECONDS: Final = 10
"""A server that hangs is left after about three times that."""

BUFFER_BYTES: Final = 8 * 1_024 * 1_024
"""Answers that wait to be sent. While there is a connection, further ones are held up; while there is none, dropped."""

AGAIN_SECONDS: Final = 60
"""While there is no connection, the same reason is said so seldom: it is tried twice a second, perhaps all night."""

ROOM_SECONDS: Final = 1
"""How often whoever waits for room looks whether there still is a connection."""

GIVEN_AT_ONCE: Final = 32
"""Messages that are given before what they were answered goes out: else whoever asks is idle while we work, and we while
they do."""

_log = structlog.get_logger("keyhouse.nats")

Taker = Callable[[str, str, bytes], None]
"""Takes a message: its subject, reply subject (empty: there is none) and data. It must not raise."""


class Connection(NatsDriver):
    """The driver's, with a short way in and out for a service, and which no message silences. The driver stops reading at
    subjects and headers that it can't decode, and anybody can send those.

    The driver hands each message to a queue, and a task for each subscription takes it from there; what is sent passes
    through two coroutines. That is half of what an answer from memory costs. So a service's messages are given to it as
    they are read, and its answers are put where the driver's own go.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = Parser(self)
        self.takers: dict[bytes, Taker] = {}
        """By the number of the subscription, as it is sent."""
        self._given = 0
        self.dropped = 0
        self._told = -math.inf

    @property
    def reads(self) -> bool:
        """Whether what comes is read. The driver gives that up at an error that it did not foresee, and stays connected."""
        return self._reading_task is not None and not self._reading_task.done()

    async def take(self, subject: str, queue: str, taker: Taker) -> Subscription:
        """Subscribe: from now on, also after a reconnect, its messages are given to `taker`, in their order."""
        number = self._sid + 1  # which `subscribe` gives it; a message may come before that returns
        self.takers[b"%d" % number] = taker
        try:
            subscription = await self.subscribe(subject, queue=queue, cb=_not_called)
        except NatsError:
            if self._sid < number:  # refused: the number is the next one's
                del self.takers[b"%d" % number]
            raise
        assert subscription._id == number
        return subscription

    def answer(self, subject: str, data: bytes) -> bool:
        """Send a message if that takes no waiting, and nothing is in its way; whether it did. Else `publish` says what is.

        The subject is one that came from the server: it holds nothing that would end the line.
        """
        line = b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data)
        flusher = self._flusher_task
        if (
            self._status != Client.CONNECTED
            or self._flush_queue is None
            or flusher is None
            or flusher.done()
        ):
            return False
        if len(data) > self._max_payload or self._pending_data_size + len(line) > BUFFER_BYTES:
            return False
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(data)
        self._pending.append(line)
        self._pending_data_size += len(line)
        if self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    async def room(self) -> None:
        """Wait while more is to be sent than may be, and the server is there to take it. The driver keeps all of it: a small
        request for a large value, sent often enough, would fill the memory."""
        while self._pending_data_size > BUFFER_BYTES and self._status == Client.CONNECTED:
            flusher = self._flusher_task
            if self._flush_queue is None or flusher is None or flusher.done():
                return
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_SECONDS):
                    await self._flush_queue.put(flushed)
                    await flushed

    def give(self, taker: Taker, subject: bytes, reply: bytes, data: bytes) -> bool:
        """Hand a message on; whether it is others' turn now."""
        stats = self.stats
        stats["in_msgs"] += 1
        stats["in_bytes"] += len(data)
        try:
            taker(subject.decode(), reply.decode(), data)
        except UnicodeDecodeError:
            self._drop()
        except (
            Exception
        ) as error:  # raised further, it would end the driver's reading, and with it the service
            _log.error(
                "nats message lost", subject=subject.decode(errors="replace"), exc_info=error
            )
        self._given = (self._given + 1) % GIVEN_AT_ONCE
        return not self._given

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any
    ) -> None:
        taker = self.takers.get(b"%d" % sid)
        if taker is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        elif self.give(taker, subject, reply, data):
            await asyncio.sleep(0)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self.takers.pop(b"%d" % sid, None)

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg | None:
        try:
            return cast(Msg, super()._build_message(sid, subject, reply, data, headers))
        except UnicodeDecodeError:
            self._drop()
            return None

    def _drop(self) -> None:
        self.dropped += 1
        if (
            now := time.monotonic()
        ) - self._told >= 1:  # a flood of them is not to become one of lines
            self._told = now
            _log.warning(
                "nats message dropped", reason="a subject that is not UTF-8", dropped=self.dropped
            )

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        if not headers:
            return None
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None  # none that say anything


async def _not_called(message: Msg) -> None:
    """The driver asks for a callback: see `Connection.take`."""
    raise AssertionError(message)


@asynccontextmanager
async def connect(url: str, *, name: str = "keyhouse", **options: Any) -> AsyncIterator[Connection]:
    """A connection to the server, or the servers, of `url` (with commas between them). UnavailableError when none answers.

    `options` are the driver's, such as `user_credentials` or `tls`.
    """
    client = Connection()
    state = _State(client)
    try:
        async with asyncio.timeout(CONNECT_SECONDS) as state.opening:
            await client.connect(
                [each.strip() for each in url.split(",")],
                name=name,
                connect_timeout=CONNECT_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # the driver sleeps that long
                ping_interval=PING_SECONDS,
                pending_size=BUFFER_BYTES,
                error_cb=state.trouble,
                disconnected_cb=state.disconnected,
                reconnected_cb=state.reconnected,
                **options,
            )
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        await _close(client)
        sentence = (
            "The NATS server refuses the connection: look at user and password in its URL, or at nats_credentials."
            if state.last is not None and is_refusal(state.last)
            else unfit(state.last or error) or "No NATS server answers."
        )
        raise UnavailableError(
            sentence, servers=_bare(url), reason=str(state.last or error)
        ) from error
    except BaseException:
        await _close(client)
        raise
    state.connected = True
    _log.info("nats connected", server=_server(client))
    try:
        yield client
    finally:
        state.closing = True
        await _close(client)


async def settle(client: Client) -> None:
    """Wait until the server has all that was sent. The driver's `flush` sends its ping past what waits to be sent; by the
    time the first is answered that has gone out, and the second comes behind it."""
    await client.flush()
    await client.flush()


async def leave(client: Client, subscription: Subscription) -> None:
    """End a subscription when all that the server had for it has been taken. As the driver's `drain`, but for its ping."""
    await client._send_unsubscribe(subscription._id)
    await settle(client)
    await subscription._pending_queue.join()
    subscription._stop_processing()
    client._remove_sub(subscription._id)


def _bare(url: str) -> str:
    """Without who connects."""
    return ",".join(each.rpartition("@")[2] for each in url.split(","))


def _server(client: Client) -> str | None:
    return None if client.connected_url is None else _bare(client.connected_url.netloc)


async def _close(client: Client) -> None:
    if not client.is_closed:
        await client.close()


class _State:
    """What the driver tells, as log lines. The first connection's troubles are in the error that is raised."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self.connected = False
        self.closing = False
        self.last: Exception | None = None
        self.opening: asyncio.Timeout | None = None
        self._said = ("", -math.inf)
        self._troubles = 0
        self._told = -math.inf

    async def trouble(self, error: Exception) -> None:
        if (
            self.connected or self.last is None or not is_hopeless(self.last)
        ):  # a refused connection is cut off besides
            self.last = error
        if (
            not self.connected and self.opening is not None and is_hopeless(error)
        ):  # the driver would ask again and again
            with suppress(RuntimeError):  # it is over already
                self.opening.reschedule(asyncio.get_running_loop().time() + RECONNECT_SECONDS / 2)
        reason = str(error) or type(error).__name__
        self._troubles += 1
        if self.connected and (
            self._is_due() if self._client.is_connected else self._is_news(reason)
        ):
            _log.warning("nats trouble", reason=reason, troubles=self._troubles)

    def _is_due(self) -> bool:
        """Once a second: who has its answers sent where the service may not speak has the server complain of each."""
        due = (now := time.monotonic()) - self._told >= 1
        self._told = now if due else self._told
        return due

    def _is_news(self, reason: str) -> bool:
        said, at = self._said
        now = time.monotonic()
        if reason == said and now < at + AGAIN_SECONDS:
            return False
        self._said = (reason, now)
        return True

    async def disconnected(self) -> None:
        if self.connected and not self.closing:
            _log.warning(
                "nats disconnected",
                reason=str(self.last) if self.last else "the connection was lost",
            )

    async def reconnected(self) -> None:
        self._said = ("", -math.inf)
        _log.info("nats reconnected", server=_server(self._client))
