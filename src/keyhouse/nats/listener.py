"""The NATS listener: subscribes to endpoints, runs their handlers, and drains.

Requests in flight and pending ones are bounded, and tenants take turns (`fair_queue`). Requests
beyond the bounds are rejected at once with a reply (BusyError).
"""

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import structlog
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.nuid import NUID

from keyhouse.errors import BusyError, KeyhouseError, LimitError
from keyhouse.limits import NATS_IN_FLIGHT_MAX, NATS_PENDING_MAX, TENANTS_CACHED
from keyhouse.nats.client import HandlerSubscription, MessageHandler, NatsClient
from keyhouse.nats.endpoint import Endpoint, Request, error_headers, error_reply
from keyhouse.nats.fair_queue import START_PER_TURN_MAX, FairQueue, TenantQueue
from keyhouse.nats.micro import EndpointStats, Micro, now_ns
from keyhouse.nats.push_queue import PushQueue

__all__ = ["NatsListener"]

_Route = tuple[EndpointStats, TenantQueue]
"""The statistics and the queue of one subject: one lookup per message."""

HAS_LISTENER_SECONDS: Final = 1.0
"""Timeout of `has_listener`."""

_log = structlog.get_logger("keyhouse.nats")


class NatsListener:
    """One service on a connection.

        async with NatsListener(client, endpoints, name="rosey", version="1.0.0"): …

    Processes with the same `name` share the load: each message goes to one member of the `queue`
    group. `push_client` is a second connection for what handlers publish beside their replies, so
    that replies do not wait for slow subscribers. At the end of the block, or by `drain`, it
    unsubscribes and finishes all messages that it has received. The connections stay open.
    """

    def __init__(
        self,
        client: NatsClient,
        endpoints: Sequence[Endpoint],
        *,
        name: str,
        version: str,
        description: str = "",
        queue: str | None = None,
        in_flight_max: int = NATS_IN_FLIGHT_MAX,
        pending_max: int = NATS_PENDING_MAX,
        push_client: NatsClient | None = None,
    ) -> None:
        self._client = client
        self._push_client = push_client or client
        self._pushes = PushQueue(self._push_client)
        self._endpoints = endpoints
        self._queue = queue or name
        self._messages = FairQueue(
            self._work_failed, in_flight_max=in_flight_max, pending_max=pending_max
        )
        self._routes: list[dict[str, _Route]] = []
        self._turn = 0
        self._starts_left = 0
        self._rejected = 0
        self._logged_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: list[HandlerSubscription] = []
        self._loop = asyncio.get_running_loop()
        id = NUID().next().decode()
        self._micro = Micro(client, name=name, version=version, description=description, id=id)
        self._log = _log.bind(service=name, id=id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    async def start(self) -> None:
        """Subscribe. When this returns, the server has all subscriptions."""
        for endpoint in self._endpoints:
            await self._subscribe(endpoint)
        await self._micro.start()
        await self._client.flush_all()
        self._log.info(
            "nats serving",
            subjects=[endpoint.subject for endpoint in self._endpoints],
            queue=self._queue,
        )

    async def drain(self) -> None:
        """Unsubscribe, finish received messages, cancel spawned tasks. Further calls do nothing."""
        subscriptions, self._subscriptions = self._subscriptions, []
        if not subscriptions:
            return
        with suppress(NatsError):
            await self._micro.stop()
        for subscription in subscriptions:
            with suppress(NatsError):
                await self._client.unsubscribe_drained(subscription)
        await self._messages.wait_until_idle()
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._pushes.close()
        for client in {self._client, self._push_client}:
            with suppress(NatsError):
                await client.flush_all()
        self._log.info("nats drained")

    # For handlers (see `Publisher`)

    async def publish(self, subject: str, data: bytes, *, tenant: str | None = None) -> None:
        if tenant is not None:
            return await self._pushes.send(tenant, subject, data)
        await self._push_client.wait_for_space()
        await self._push_client.publish(subject, data)

    async def has_listener(self, subject: str, data: bytes) -> bool:
        try:
            await self._push_client.request(subject, data, timeout=HAS_LISTENER_SECONDS)
        except NoRespondersError:
            return False
        except NatsError:
            return not self._push_client.is_closed
        return True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("nats task failed", exc_info=error)

    # Messages

    async def _subscribe(self, endpoint: Endpoint) -> None:
        queue = endpoint.queue or self._queue
        by_operation = {
            word: EndpointStats(word, subject, queue)
            for word, subject in endpoint.operations.items()
        }
        other = EndpointStats(endpoint.name, endpoint.subject, queue)
        self._micro.endpoints += [*by_operation.values(), *([] if by_operation else [other])]
        make = self._handler if endpoint.tenant_of_body is None else self._handler_by_body
        handler = make(endpoint, by_operation, other)
        self._subscriptions.append(await self._client.handle(endpoint.subject, queue, handler))

    def _handler(
        self, endpoint: Endpoint, by_operation: dict[str, EndpointStats], other: EndpointStats
    ) -> MessageHandler:
        def handle(subject: str, reply: str, data: bytes) -> bool:
            route = routes.get(subject)
            if route is None:
                stats = by_operation.get(subject.rpartition(".")[2], other)
                route = routes[subject] = stats, self._queue_of(endpoint, subject)
            stats, queue = route
            if self._turn != client.turn:
                self._turn, self._starts_left = client.turn, START_PER_TURN_MAX
            if self._starts_left and messages.has_place(queue):
                self._starts_left -= 1
                messages.start(queue, self._respond(endpoint, stats, subject, reply, data))
                return True
            if not messages.append(
                queue, len(data), self._respond, endpoint, stats, subject, reply, data
            ):
                self._reject(endpoint, subject, reply)
            return False

        client, messages = self._client, self._messages
        routes: dict[str, _Route] = {}
        self._routes.append(routes)
        return handle

    def _handler_by_body(
        self, endpoint: Endpoint, by_operation: dict[str, EndpointStats], other: EndpointStats
    ) -> MessageHandler:
        """Return the handler of an endpoint whose bodies name the tenant."""

        def handle(subject: str, reply: str, data: bytes) -> bool:
            stats = by_operation.get(subject.rpartition(".")[2], other)
            if len(messages) >= TENANTS_CACHED:
                self._forget_tenants()
            queue = messages.tenant(tenant_of(data))
            if self._turn != client.turn:
                self._turn, self._starts_left = client.turn, START_PER_TURN_MAX
            work = (endpoint, stats, subject, reply, data)
            if self._starts_left and messages.has_place(queue):
                self._starts_left -= 1
                messages.start(queue, self._respond(*work))
                return True
            if not messages.append(queue, len(data), self._respond, *work):
                self._reject(endpoint, subject, reply)
            return False

        assert endpoint.tenant_of_body is not None
        client, messages, tenant_of = self._client, self._messages, endpoint.tenant_of_body
        return handle

    def _forget_tenants(self) -> None:
        for routes in self._routes:
            routes.clear()
        self._messages.forget_idle()

    def _queue_of(self, endpoint: Endpoint, subject: str) -> TenantQueue:
        if sum(map(len, self._routes)) >= TENANTS_CACHED:
            self._forget_tenants()
        return self._messages.tenant("" if endpoint.tenant is None else endpoint.tenant(subject))

    def _work_failed(self, error: BaseException) -> None:
        self._log.error("unhandled exception", exc_info=error)

    async def _respond(
        self, endpoint: Endpoint, stats: EndpointStats, subject: str, reply: str, data: bytes
    ) -> None:
        """Never raises: the next message is answered in any case."""
        started = now_ns()
        stats.requests += 1
        headers: dict[str, str] | None = None
        try:
            response = await endpoint.handler(Request(subject, data, reply, self))
        except (Exception, asyncio.CancelledError) as error:
            # CancelledError comes from something it awaited: nobody cancels this coroutine
            response = self._failed(stats, subject, error)
            headers = error_headers(error, problem=endpoint.problems)
        stats.nanoseconds += now_ns() - started
        if response is None or not reply:
            return
        if not self._client.try_publish(reply, response, headers):
            await self._publish_reply(reply, response, headers)

    def _failed(self, stats: EndpointStats, subject: str, error: BaseException) -> bytes:
        stats.errors += 1
        stats.last_error = error.code if isinstance(error, KeyhouseError) else type(error).__name__
        if not isinstance(error, KeyhouseError):
            self._log.error("unhandled exception", subject=subject, exc_info=error)
        return error_reply(error)

    async def _publish_reply(
        self, reply: str, response: bytes, headers: dict[str, str] | None
    ) -> None:
        try:
            await self._client.wait_for_space()
            usable = headers if self._client.has_headers else None
            await self._client.publish(reply, response, headers=usable)
        except MaxPayloadError:
            too_large = LimitError(
                "The reply exceeds the max_payload of the NATS server.",
                bytes=len(response),
                limit=self._client.max_payload,
            )
            await self._publish_reply(reply, error_reply(too_large), error_headers(too_large))
        except (NatsError, OSError) as error:
            self._log.warning("nats reply lost", reason=str(error) or type(error).__name__)

    def _reject(self, endpoint: Endpoint, subject: str, reply: str) -> None:
        self._rejected += 1
        if (now := time.monotonic()) - self._logged_at >= 1:  # a flood of messages logs no flood
            self._logged_at = now
            self._log.warning(
                "nats overflow",
                subject=subject,
                pending_max=self._messages.pending_max,
                rejected=self._rejected,
            )
        if endpoint.rejected is not None and not endpoint.rejected(subject, reply):
            return
        if reply:
            busy = BusyError(
                "Too many pending requests: try again.", waiting=self._messages.pending_max
            )
            # without a reply if there is no space for it
            self._client.try_publish(reply, error_reply(busy), error_headers(busy))
