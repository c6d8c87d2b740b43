"""The face itself: subscribes, has each message answered, and leaves in order.

Work in flight is bounded. When as much as may be is under way, the next message waits, and behind it the driver's own queue
fills, to a bound too; what comes then is refused at once, with an answer that says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError, SlowConsumerError

from keyhouse.errors import BusyError, KeyhouseError, LimitError
from keyhouse.serve.nats.begun import begin
from keyhouse.serve.nats.connection import Connection, leave, settle
from keyhouse.serve.nats.endpoint import Endpoint, Request
from keyhouse.serve.nats.failure import failure
from keyhouse.serve.nats.micro import Micro, Tally, now_ns

IN_FLIGHT_MAX: Final = 1_024
"""Requests that are under way at once."""

WAITING_MAX: Final = 65_536
"""Requests of one endpoint that wait for their turn."""

WAITING_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""The same, in bytes."""

HEARD_SECONDS: Final = 1.0
"""How long a listener may take to answer where one is asked for."""

_log = structlog.get_logger("keyhouse.nats")


class NatsFace:
    """One service on a connection: `async with NatsFace(connection, endpoints, name="rosey", version="1.0.0"): …`.

    Processes that serve the same `name` share the load: each message goes to one of them, of those in the `queue`. At the
    end of the block, or by `drain`, it takes nothing more, finishes what it has taken, and leaves. The connection stays.
    """

    def __init__(
        self,
        connection: Client,
        endpoints: Sequence[Endpoint],
        *,
        name: str,
        version: str,
        description: str = "",
        queue: str | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._client = connection
        self._endpoints = endpoints
        self._queue = queue or name
        self._waiting_max = waiting_max
        self._in_flight_max = in_flight_max
        self._in_flight: set[asyncio.Task[None]] = set()
        self._room: asyncio.Future[None] | None = None
        self._companions: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []
        self._loop = asyncio.get_running_loop()
        id = connection._nuid.next().decode()
        self._micro = Micro(connection, name=name, version=version, description=description, id=id)
        self._log = _log.bind(service=name, id=id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    async def start(self) -> None:
        """Answer from now on: when this returns, the server knows of it."""
        for endpoint in self._endpoints:
            await self._subscribe(endpoint)
        await self._micro.start()
        await settle(self._client)
        self._log.info("nats serving", subjects=[endpoint.subject for endpoint in self._endpoints], queue=self._queue)

    async def drain(self) -> None:
        """Take nothing more, finish what was taken, end what accompanies. A second call does nothing."""
        subscriptions, self._subscriptions = self._subscriptions, []
        if not subscriptions:
            return
        with suppress(NatsError):
            await self._micro.stop()
        for subscription in subscriptions:
            with suppress(NatsError):
                await leave(self._client, subscription)
            if isinstance(self._client, Connection):
                self._client.overflows.pop(subscription._id, None)
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        for companion in self._companions:
            companion.cancel()
        while self._companions:
            await asyncio.wait(self._companions)
        with suppress(NatsError):
            await settle(self._client)
        self._log.info("nats drained")

    # What a handler may do (see `Courier`)

    async def publish(self, subject: str, data: bytes) -> None:
        await self._client.publish(subject, data)

    async def is_heard(self, subject: str, data: bytes) -> bool:
        try:
            await self._client.request(subject, data, timeout=HEARD_SECONDS)
        except NoRespondersError:
            return False
        except NatsError:
            return not self._client.is_closed
        return True

    def accompany(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._companions.add(task)
        task.add_done_callback(self._companion_ended)

    def _companion_ended(self, task: asyncio.Task[None]) -> None:
        self._companions.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("nats companion failed", exc_info=error)

    # Messages

    async def _subscribe(self, endpoint: Endpoint) -> None:
        queue = endpoint.queue or self._queue
        tallies = {word: Tally(word, subject, queue) for word, subject in endpoint.operations.items()}
        other = Tally(endpoint.name, endpoint.subject, queue)
        self._micro.tallies += [*tallies.values(), *([] if tallies else [other])]
        subscription = await self._client.subscribe(
            endpoint.subject,
            queue=queue,
            cb=self._taking(endpoint, tallies, other),
            pending_msgs_limit=self._waiting_max,
            pending_bytes_limit=WAITING_BYTES_MAX,
        )
        self._subscriptions.append(subscription)
        if isinstance(self._client, Connection):
            self._client.overflows[subscription._id] = self._refusing(endpoint)

    def _taking(self, endpoint: Endpoint, tallies: dict[str, Tally], other: Tally) -> Callable[[Msg], Awaitable[None]]:
        loop, in_flight, most = self._loop, self._in_flight, self._in_flight_max

        caller: asyncio.Task[Any] | None = None

        async def take(message: Msg) -> None:
            nonlocal caller
            if caller is None:
                caller = asyncio.current_task()  # the subscription's, every time
                assert caller is not None
            while len(in_flight) >= most:
                await self._until_room()
            tally = tallies.get(message.subject.rpartition(".")[2], other)
            task = begin(loop, caller, self._answer(endpoint, tally, message))
            if task is not None:
                in_flight.add(task)
                task.add_done_callback(self._ended)

        return take

    async def _answer(self, endpoint: Endpoint, tally: Tally, message: Msg) -> None:
        """Never raises: whatever happens, the next message is answered too."""
        start = now_ns()
        tally.requests += 1
        try:
            answer = await endpoint.handler(Request(message.subject, message.data, message.reply, self))
        except Exception as error:
            answer = self._failed(tally, message, error)
        tally.nanoseconds += now_ns() - start
        if answer is not None and message.reply:
            await self._send(message.reply, answer)

    def _failed(self, tally: Tally, message: Msg, error: Exception) -> bytes:
        tally.errors += 1
        tally.last_error = error.code if isinstance(error, KeyhouseError) else type(error).__name__
        if not isinstance(error, KeyhouseError):
            self._log.error("nats handler failed", subject=message.subject, exc_info=error)
        return failure(error)

    async def _send(self, reply: str, answer: bytes) -> None:
        try:
            await self._client.publish(reply, answer)
        except MaxPayloadError:
            most = self._client.max_payload
            too_large = LimitError("The answer is larger than NATS lets through.", bytes=len(answer), limit=most)
            await self._send(reply, failure(too_large))
        except (NatsError, OSError) as error:
            self._log.warning("nats answer lost", reason=str(error) or type(error).__name__)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def _until_room(self) -> None:
        if self._room is None or self._room.done():
            self._room = self._loop.create_future()
        await self._room

    def _refusing(self, endpoint: Endpoint) -> Callable[[SlowConsumerError], Awaitable[None]]:
        async def refuse(overflow: SlowConsumerError) -> None:
            self._log.warning("nats overflow", subject=overflow.subject, waiting_max=self._waiting_max)
            if endpoint.refused is not None and not endpoint.refused(overflow.subject, overflow.reply):
                return
            if overflow.reply:
                busy = BusyError("More requests are waiting than can be taken; try again.", waiting=self._waiting_max)
                await self._send(overflow.reply, failure(busy))

        return refuse
