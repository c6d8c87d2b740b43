"""The face itself: subscribes, has each message answered, and leaves in order.

Work in flight is bounded. When as much as may be is under way, further messages wait, up to a bound too; what comes then is
refused at once, with an answer that says so.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import structlog
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError

from keyhouse.errors import BusyError, KeyhouseError, LimitError
from keyhouse.nats.connection import GIVEN_AT_ONCE, Connection, Taker, leave, settle
from keyhouse.nats.eager_task import begin
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.error_reply import failure
from keyhouse.nats.micro import Micro, Tally, now_ns

IN_FLIGHT_MAX: Final = 1_024
"""Requests that are under way at once."""

WAITING_MAX: Final = 65_536
"""Requests that wait for their turn."""

WAITING_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""The same, in bytes."""

HEARD_SECONDS: Final = 1.0
"""How long a listener may take to answer where one is asked for."""

_log = structlog.get_logger("keyhouse.nats")


class NatsListener:
    """One service on a connection: `async with NatsFace(connection, endpoints, name="rosey", version="1.0.0"): …`.

    Processes that serve the same `name` share the load: each message goes to one of them, of those in the `queue`. At the
    end of the block, or by `drain`, it takes nothing more, finishes what it has taken, and leaves. The connection stays.
    """

    def __init__(
        self,
        connection: Connection,
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
        self._in_flight = 0
        self._waiting: deque[_Taken] = deque()
        self._waiting_bytes = 0
        self._going_on = False
        self._refused = 0
        self._told = -math.inf
        self._idle: asyncio.Future[None] | None = None
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
        self._log.info(
            "nats serving",
            subjects=[endpoint.subject for endpoint in self._endpoints],
            queue=self._queue,
        )

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
        while self._in_flight or self._waiting:
            self._idle = self._loop.create_future()
            await self._idle
        for companion in self._companions:
            companion.cancel()
        while self._companions:
            await asyncio.wait(self._companions)
        with suppress(NatsError):
            await settle(self._client)
        self._log.info("nats drained")

    # What a handler may do (see `Courier`)

    async def publish(self, subject: str, data: bytes) -> None:
        await self._client.room()
        await self._client.publish(subject, data)

    async def has_listener(self, subject: str, data: bytes) -> bool:
        try:
            await self._client.request(subject, data, timeout=HEARD_SECONDS)
        except NoRespondersError:
            return False
        except NatsError:
            return not self._client.is_closed
        return True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
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
        tallies = {
            word: Tally(word, subject, queue) for word, subject in endpoint.operations.items()
        }
        other = Tally(endpoint.name, endpoint.subject, queue)
        self._micro.tallies += [*tallies.values(), *([] if tallies else [other])]
        self._subscriptions.append(
            await self._client.take(endpoint.subject, queue, self._taking(endpoint, tallies, other))
        )

    def _taking(self, endpoint: Endpoint, tallies: dict[str, Tally], other: Tally) -> Taker:
        def take(subject: str, reply: str, data: bytes) -> None:
            tally = tallies.get(subject.rpartition(".")[2], other)
            if self._in_flight < self._in_flight_max and not self._waiting:
                self._begin(self._answer(endpoint, tally, subject, reply, data))
            elif (
                len(self._waiting) < self._waiting_max
                and self._waiting_bytes + len(data) <= WAITING_BYTES_MAX
            ):
                self._waiting.append((endpoint, tally, subject, reply, data))
                self._waiting_bytes += len(data)
            else:
                self._refuse(endpoint, subject, reply)

        return take

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Must not raise: what is raised where the driver reads would end its reading, and with it the service."""
        self._in_flight += 1
        try:
            if not begin(self._loop, work, self._ended):
                return
        except Exception as error:
            self._log.error("nats answer failed", exc_info=error)
        self._in_flight -= 1

    def _ended(self, failure: BaseException | None) -> None:
        if failure is not None:
            self._log.error("nats answer failed", exc_info=failure)
        self._in_flight -= 1
        if not self._going_on:
            self._go_on()

    def _go_on(self) -> None:
        """Begin what waits, some at a time: what ends at once makes room for the next, and the loop is others' too."""
        for _ in range(GIVEN_AT_ONCE):
            if not self._waiting or self._in_flight >= self._in_flight_max:
                break
            taken = self._waiting.popleft()
            self._waiting_bytes -= len(taken[-1])
            self._begin(self._answer(*taken))
        self._going_on = bool(self._waiting) and self._in_flight < self._in_flight_max
        if self._going_on:
            self._loop.call_soon(self._go_on)
        elif not self._in_flight and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _answer(
        self, endpoint: Endpoint, tally: Tally, subject: str, reply: str, data: bytes
    ) -> None:
        """Never raises: whatever happens, the next message is answered too."""
        start = now_ns()
        tally.requests += 1
        try:
            answer = await endpoint.handler(Request(subject, data, reply, self))
        except (
            Exception,
            asyncio.CancelledError,
        ) as error:  # the latter of something that it awaited: nobody cancels it
            answer = self._failed(tally, subject, error)
        tally.nanoseconds += now_ns() - start
        if answer is not None and reply and not self._client.answer(reply, answer):
            await self._send(reply, answer)

    def _failed(self, tally: Tally, subject: str, error: BaseException) -> bytes:
        tally.errors += 1
        tally.last_error = error.code if isinstance(error, KeyhouseError) else type(error).__name__
        if not isinstance(error, KeyhouseError):
            self._log.error("nats handler failed", subject=subject, exc_info=error)
        return failure(error)

    async def _send(self, reply: str, answer: bytes) -> None:
        try:
            await self._client.room()
            await self._client.publish(reply, answer)
        except MaxPayloadError:
            most = self._client.max_payload
            too_large = LimitError(
                "The answer is larger than NATS lets through.", bytes=len(answer), limit=most
            )
            await self._send(reply, failure(too_large))
        except (NatsError, OSError) as error:
            self._log.warning("nats answer lost", reason=str(error) or type(error).__name__)

    def _refuse(self, endpoint: Endpoint, subject: str, reply: str) -> None:
        self._refused += 1
        if (
            now := time.monotonic()
        ) - self._told >= 1:  # a flood of them is not to become one of lines
            self._told = now
            self._log.warning(
                "nats overflow",
                subject=subject,
                waiting_max=self._waiting_max,
                refused=self._refused,
            )
        if endpoint.refused is not None and not endpoint.refused(subject, reply):
            return
        if reply:
            busy = BusyError(
                "More requests are waiting than can be taken; try again.", waiting=self._waiting_max
            )
            self._client.answer(reply, failure(busy))  # or not, where not even that has room


_Taken = tuple[Endpoint, Tally, str, str, bytes]
"""What is to be answered: by whom, counted where, and the message's subject, reply and data."""
