"""The NATS listener: subscribes to endpoints, runs their handlers, and drains.

Tenants share connections, so a flood of one tenant precedes the next request of another in the
bytes of a connection. Reading and queueing a message costs a fiftieth of handling it: a few
messages are started in the turn of the event loop in which they are read, and the others wait for
the turn of their tenant (`keyhouse.scheduling.turns`). Requests in flight and pending ones are
bounded; those beyond the bounds are rejected at once with a reply (BusyError).

Partitions. A connection is read in order: a flood of one tenant delays what follows it there by 3
µs a message. So an endpoint with `partition_by` can be received over several connections. The
server maps `db.kv.trivia.get` to `db.kv.trivia.get.6`, where 6 is the hash of `trivia`, and
connection 6 subscribes to `db.kv.*.*.6`. A tenant has one connection, and its messages stay in
order; a flood delays one tenant of NATS_PARTITIONS.

| server | messages come over |
|---|---|
| with mappings | the connection of their partition; the main one, if there are no others |
| without, or until it has them | the main connection, which subscribes to the plain subject |

Of several workers on a host each reads its share of the partitions, so that a tenant stays in one;
plain subjects are spread over the queue group.

The server matches a message once, mapped or not, so that it is neither lost nor received twice
while mappings change. Replies go over the main connection, many in one write: the server reads it
without delay, and they are already in turns. Only rejections go over the connection of the request,
since a flood causes as many.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

import structlog
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.nuid import NUID

from keyhouse.errors import BusyError, KeyhouseError, LimitError
from keyhouse.nats.client import HandlerSubscription, MessageHandler, NatsClient
from keyhouse.nats.endpoint import (
    Endpoint,
    ReplySubjects,
    Request,
    error_headers,
    error_reply,
)
from keyhouse.nats.limits import (
    NATS_IN_FLIGHT_MAX,
    NATS_PARTITIONS,
    NATS_PENDING_BYTES_MAX,
    NATS_PENDING_MAX,
    NATS_TENANT_IN_FLIGHT_MAX,
    NATS_TENANT_PENDING_FEW,
    NATS_TENANT_PENDING_MAX,
    TENANTS_CACHED,
)
from keyhouse.nats.micro import EndpointStats, Micro, now_ns
from keyhouse.nats.push_queue import PushQueue
from keyhouse.scheduling.eager_task import start
from keyhouse.scheduling.turns import MANY, Bounds, Line, Turns

__all__ = ["NatsListener"]

START_PER_TURN_MAX: Final = 32
"""Messages started per turn of the event loop, before replies are flushed."""

START_BYTES: Final = 4_096
"""A message counts as one more for each of these."""

START_SECONDS: Final = 0.002
"""Time after which no further pending message is started in a turn: one takes 0.03 to 1 ms."""

HAS_LISTENER_SECONDS: Final = 1.0
"""Timeout of `has_listener`."""

_log = structlog.get_logger("keyhouse.nats")


Work = Coroutine[Any, Any, None]
PendingRequest = tuple[Callable[..., Work], tuple[Any, ...]]


class RequestLine(Line[PendingRequest]):
    """The requests of one tenant. `done` is called with the exception of one that has waited."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[Line[PendingRequest], BaseException | None], None]) -> None:
        super().__init__()
        self.done = partial(done, self)


class RequestTurns(Turns[PendingRequest]):
    """The requests of a listener: tasks that start at once, in turns of the tenants. `failed` is
    called with an exception that one raised: it must not end the reading of messages."""

    __slots__ = ("_failed", "_loop")

    def __init__(
        self,
        failed: Callable[[BaseException], None],
        *,
        in_flight_max: int = NATS_IN_FLIGHT_MAX,
        pending_max: int = NATS_PENDING_MAX,
    ) -> None:
        super().__init__(
            self._start_pending,
            places=in_flight_max,
            share=min(in_flight_max, NATS_TENANT_IN_FLIGHT_MAX),
            starts=START_PER_TURN_MAX,
            start_bytes=START_BYTES,
            seconds=START_SECONDS,
            bounds=Bounds(
                line=NATS_TENANT_PENDING_MAX,
                line_bytes=NATS_PENDING_BYTES_MAX // 2,
                total=pending_max,
                total_bytes=NATS_PENDING_BYTES_MAX,
                few=NATS_TENANT_PENDING_FEW,
                floods=3 * pending_max // 4,
                floods_bytes=3 * NATS_PENDING_BYTES_MAX // 4,
            ),
            lines_max=MANY,  # routes refer to them: see `NatsListener._forget_tenants`
        )
        self._failed = failed
        self._loop = asyncio.get_running_loop()

    def run(self, line: Any, work: Work) -> None:
        """Run a request that `try_start` has counted."""
        try:
            if not start(self._loop, work, line.done):
                return
        except Exception as error:
            self._failed(error)
        self.leave(line)

    def _new_line(self) -> RequestLine:
        return RequestLine(self._done)

    def _start_pending(self, line: Any, pending: PendingRequest) -> bool:
        make, arguments = pending
        try:
            return not start(self._loop, make(*arguments), line.done)
        except Exception as error:
            self._failed(error)
            return False

    def _done(self, line: Line[PendingRequest], error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
        self.leave(line)


_Route = tuple[EndpointStats, Line[PendingRequest], str]
"""The statistics and the line of one subject, and the subject without its partition: one lookup
per message."""


class NatsListener:
    """One service on a connection, or several.

        async with NatsListener(client, endpoints, name="rosey", version="1.0.0"): …

    Processes with the same `name` share the load: each message goes to one member of the `queue`
    group. `push_client` is a second connection for what handlers publish beside their replies, so
    that replies do not wait for slow subscribers. `partitions` are those that are read here, each
    with its connection, for requests whose subject the server maps to a partition; by default all,
    over `client`. `replies` are the subjects of
    all services of the process, to which it never replies. At the end of the block, or by `drain`,
    it unsubscribes and finishes all messages that it has received. The connections stay open.
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
        partitions: Mapping[int, NatsClient] | None = None,
        replies: ReplySubjects | None = None,
    ) -> None:
        self.client = client
        self._replies = ReplySubjects() if replies is None else replies
        self._replies.protect(*(each.subject for each in endpoints))
        self._push_client = push_client or client
        if partitions is None:
            partitions = dict.fromkeys(range(NATS_PARTITIONS), client)
        self._partitions = partitions
        self._clients = dict.fromkeys((client, self._push_client, *partitions.values()))
        self._pushes = PushQueue(self._push_client)
        self._endpoints = endpoints
        self._queue = queue or name
        self._pending_max = pending_max
        self.requests = RequestTurns(
            self._work_failed, in_flight_max=in_flight_max, pending_max=pending_max
        )
        self._routes: list[dict[str, _Route]] = []
        self._rejected = 0
        self._logged_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[NatsClient, list[HandlerSubscription]] = {}
        self._loop = asyncio.get_running_loop()
        id = NUID().next().decode()
        self._micro = Micro(
            client,
            name=name,
            version=version,
            description=description,
            id=id,
            replies=self._replies,
        )
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
        await asyncio.gather(*(client.flush_all() for client in self._clients))
        self._log.info(
            "nats serving",
            subjects=[endpoint.subject for endpoint in self._endpoints],
            queue=self._queue,
        )

    async def drain(self) -> None:
        """Unsubscribe, finish received messages, cancel spawned tasks. Further calls do nothing."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        if not subscriptions:
            return
        with suppress(NatsError):
            await self._micro.stop()
        await _all_connected(
            client.unsubscribe_drained(*each) for client, each in subscriptions.items()
        )
        await self.requests.wait_until_idle()
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._pushes.close()
        await _all_connected(client.flush_all() for client in self._clients)
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
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, (NatsError, OSError)):
            self._log.warning("nats push lost", reason=str(error) or type(error).__name__)
        else:
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
        if endpoint.tenant_of_body is not None:
            handler = self._handler_by_body(endpoint, by_operation, other)
            return await self._handle(self.client, endpoint.subject, queue, handler)
        routes: dict[str, _Route] = {}
        self._routes.append(routes)

        def route_of(subject: str, public: str) -> _Route:
            stats = by_operation.get(public.rpartition(".")[2], other)
            route = routes[subject] = stats, self._line_of(endpoint, public), public
            return route

        handler = self._handler(endpoint, self.client, routes, lambda each: route_of(each, each))
        await self._handle(self.client, endpoint.subject, queue, handler)
        if endpoint.partition_by is not None:
            for number, client in self._partitions.items():
                handler = self._handler(
                    endpoint, client, routes, lambda each: route_of(each, each.rpartition(".")[0])
                )
                await self._handle(client, f"{endpoint.subject}.{number}", queue, handler)

    async def _handle(
        self, client: NatsClient, subject: str, queue: str, handler: MessageHandler
    ) -> None:
        handled = await client.handle(subject, queue, handler)
        self._subscriptions.setdefault(client, []).append(handled)

    def _handler(
        self,
        endpoint: Endpoint,
        client: NatsClient,
        routes: dict[str, _Route],
        route_of: Callable[[str], _Route],
    ) -> MessageHandler:
        """Return the handler of the messages of one connection. `route_of` adds to `routes`."""

        def handle(subject: str, reply: str, data: bytes) -> bool:
            stats, line, public = routes.get(subject) or route_of(subject)
            if requests.try_start(line, len(data)):
                requests.run(line, respond(endpoint, stats, public, reply, data))
                return True
            work = (endpoint, stats, public, reply, data)
            if not requests.wait(line, (respond, work), len(data)):
                self._reject(endpoint, client, public, reply, data)
            return False

        requests, respond = self.requests, self._respond
        return handle

    def _handler_by_body(
        self, endpoint: Endpoint, by_operation: dict[str, EndpointStats], other: EndpointStats
    ) -> MessageHandler:
        """Return the handler of an endpoint whose bodies name the tenant."""

        def handle(subject: str, reply: str, data: bytes) -> bool:
            stats = by_operation.get(subject.rpartition(".")[2], other)
            if len(requests) >= TENANTS_CACHED:
                self._forget_tenants()
            line = requests.line(tenant_of(data))
            work = (endpoint, stats, subject, reply, data)
            if requests.try_start(line, len(data)):
                requests.run(line, respond(*work))
                return True
            if not requests.wait(line, (respond, work), len(data)):
                self._reject(endpoint, client, subject, reply, data)
            return False

        assert endpoint.tenant_of_body is not None
        client, requests, respond = self.client, self.requests, self._respond
        tenant_of = endpoint.tenant_of_body
        return handle

    def _forget_tenants(self) -> None:
        for routes in self._routes:
            routes.clear()
        self.requests.forget_idle()

    def _line_of(self, endpoint: Endpoint, subject: str) -> Line[PendingRequest]:
        if sum(map(len, self._routes)) >= TENANTS_CACHED:
            self._forget_tenants()
        return self.requests.line("" if endpoint.tenant is None else endpoint.tenant(subject))

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
        if not reply.startswith("_INBOX.") and not self._may_receive(
            endpoint, subject, reply, data
        ):
            return
        if not self.client.try_publish(reply, response, headers):
            await self._publish_reply(reply, response, headers)

    def _may_receive(self, endpoint: Endpoint, subject: str, reply: str, data: bytes) -> bool:
        if endpoint.tenant_of_body is not None:
            tenant = endpoint.tenant_of_body(data)
        else:
            tenant = "" if endpoint.tenant is None else endpoint.tenant(subject)
        return self._replies.may_receive(tenant, reply)

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
            await self.client.wait_for_space()
            usable = headers if self.client.has_headers else None
            await self.client.publish(reply, response, headers=usable)
        except MaxPayloadError:
            too_large = LimitError(
                "The reply exceeds the max_payload of the NATS server.",
                bytes=len(response),
                limit=self.client.max_payload,
            )
            await self._publish_reply(reply, error_reply(too_large), error_headers(too_large))
        except (NatsError, OSError) as error:
            self._log.warning("nats reply lost", reason=str(error) or type(error).__name__)

    def _reject(
        self, endpoint: Endpoint, client: NatsClient, subject: str, reply: str, data: bytes
    ) -> None:
        self._rejected += 1
        if (now := time.monotonic()) - self._logged_at >= 1:  # a flood of messages logs no flood
            self._logged_at = now
            self._log.warning(
                "nats overflow",
                subject=subject,
                pending_max=self._pending_max,
                rejected=self._rejected,
            )
        if endpoint.rejected is not None and not endpoint.rejected(subject, reply):
            return
        if reply and self._may_receive(endpoint, subject, reply, data):
            busy = BusyError("Too many pending requests: try again.", waiting=self._pending_max)
            # without a reply if there is no space for it
            client.try_publish(
                reply, error_reply(busy), error_headers(busy, problem=endpoint.problems)
            )


async def _all_connected(calls: Iterable[Awaitable[None]]) -> None:
    """Await all calls; those of lost connections fail silently."""

    async def call(awaitable: Awaitable[None]) -> None:
        with suppress(NatsError):
            await awaitable

    await asyncio.gather(*map(call, calls))
