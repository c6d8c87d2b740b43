"""The bus: publish, request and subscribe for HTTP handlers and tasks, over the service's NATS
connection.

Delivery is at most once, as NATS's own: a message published while nobody subscribes is gone, and a
subscription misses what is published while the connection is lost. It is renewed automatically when
the connection is back. Everything is bounded: requests in flight, and the messages that wait for a
subscription's reader; beyond that the newest are dropped, counted and logged.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from prometheus_client.core import CounterMetricFamily, Metric

from keyhouse.errors import BusyError, LimitError, UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.endpoint import ReplySubjects
from keyhouse.nats.limits import BUS_PENDING_BYTES_MAX, BUS_PENDING_MAX, BUS_REQUESTS_MAX

__all__ = ["Bus", "BusMessage", "BusSubscription"]

REQUEST_SECONDS: Final = 5.0
"""Default timeout of a request."""

_SUBJECT = re.compile(r"[^\s.*>\x00-\x1f\x7f]+(\.[^\s.*>\x00-\x1f\x7f]+)*")
_FILTER = re.compile(r"(([^\s.*>\x00-\x1f\x7f]+|\*)\.)*([^\s.*>\x00-\x1f\x7f]+|\*|>)")
_QUEUE = re.compile(r"[^\s\x00-\x1f\x7f]*")

_log = structlog.get_logger("keyhouse.nats")


class BusMessage(msgspec.Struct, frozen=True, gc=False):
    """One message. `reply` is the subject of the reply that the sender waits for, or empty."""

    subject: str
    data: bytes
    reply: str = ""


class BusSubscription:
    """The messages of a subscription, in order: `async for message in messages`."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.dropped = 0
        self._messages: deque[BusMessage] = deque()
        self._bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._logged_at = -1.0

    def __aiter__(self) -> AsyncIterator[BusMessage]:
        return self

    async def __anext__(self) -> BusMessage:
        while not self._messages:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        return message

    def receive(self, subject: str, reply: str, data: bytes) -> None:
        """Take a message from the connection. Drops it if too many wait."""
        if (
            len(self._messages) >= BUS_PENDING_MAX
            or self._bytes + len(data) > BUS_PENDING_BYTES_MAX
        ):
            self.dropped += 1
            if (now := time.monotonic()) - self._logged_at >= 1:
                self._logged_at = now
                _log.warning("bus messages dropped", subject=self.subject, dropped=self.dropped)
            return
        self._messages.append(BusMessage(subject, data, reply))
        self._bytes += len(data)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Bus:
    """The bus of a process. Without a client NATS is off, and each call raises UnavailableError.
    `replies` are the subjects of its services, to which none of them replies."""

    def __init__(self, client: NatsClient | None = None) -> None:
        self._client = client
        self.replies = ReplySubjects()
        self._requests = 0
        self._published = 0
        self._requested = 0
        self._failed = 0
        self._dropped = 0
        self._subscriptions: set[BusSubscription] = set()

    @property
    def is_on(self) -> bool:
        return self._client is not None

    def connect(self, client: NatsClient) -> None:
        """Use this connection. The process calls it, once NATS is connected."""
        self._client = client

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish a message. It is not an error if nobody subscribes to the subject."""
        client = self._connected(subject, _SUBJECT)
        try:
            await client.wait_for_space()
            await client.publish(subject, data)
        except MaxPayloadError:
            raise _too_large(subject, data) from None
        except NatsError as error:
            self._failed += 1
            raise UnavailableError("The message was not sent.", subject=subject) from error
        self._published += 1

    async def request(
        self, subject: str, data: bytes = b"", *, timeout_seconds: float = REQUEST_SECONDS
    ) -> bytes:
        """Publish a message and return the first reply.

        Raises UnavailableError if nobody subscribes to the subject, UnknownOutcomeError if no reply
        comes in time, and BusyError if too many requests are in flight.
        """
        client = self._connected(subject, _SUBJECT)
        if self._requests >= BUS_REQUESTS_MAX:
            raise BusyError(
                "Too many requests over NATS are in flight; try again later.",
                limit=BUS_REQUESTS_MAX,
            )
        self._requests += 1
        self._requested += 1
        try:
            return (await client.request(subject, data, timeout=timeout_seconds)).data
        except NoRespondersError:
            self._failed += 1
            raise UnavailableError("Nobody answers on this subject.", subject=subject) from None
        except MaxPayloadError:
            raise _too_large(subject, data) from None
        except (NatsTimeoutError, TimeoutError):
            self._failed += 1
            raise UnknownOutcomeError(
                "No reply came in time.", subject=subject, seconds=timeout_seconds
            ) from None
        except NatsError as error:
            self._failed += 1
            raise UnavailableError("The request was not sent.", subject=subject) from error
        finally:
            self._requests -= 1

    @asynccontextmanager
    async def subscribe(self, subject: str, *, queue: str = "") -> AsyncIterator[BusSubscription]:
        """Subscribe until the block ends; the server has the subscription when it starts.

        `subject` may have wildcards. Of the subscriptions with the same `queue`, in all processes,
        one gets each message.
        """
        client = self._connected(subject, _FILTER)
        if not _QUEUE.fullmatch(queue):
            raise UsageError("A queue group has no spaces or control characters.", queue=queue)
        messages = BusSubscription(subject)
        try:
            handled = await client.handle(subject, queue, messages.receive)
            await client.flush_all()
        except (NatsError, TimeoutError) as error:
            raise UnavailableError("The subscription failed.", subject=subject) from error
        self._subscriptions.add(messages)
        try:
            yield messages
        finally:
            self._subscriptions.discard(messages)
            self._dropped += messages.dropped
            await client.unsubscribe(handled)

    def _connected(self, subject: str, pattern: "re.Pattern[str]") -> NatsClient:
        if not pattern.fullmatch(subject):
            raise UsageError(
                "Invalid NATS subject: words separated by dots, without spaces; wildcards only to"
                " subscribe.",
                subject=subject,
            )
        if self._client is None:
            raise UnavailableError("NATS is off: start the service with --nats.")
        if not self._client.is_connected:
            raise UnavailableError("The connection to NATS is lost; reconnecting.")
        return self._client

    def collect(self) -> Iterator[Metric]:
        messages = CounterMetricFamily(
            "keyhouse_bus_messages",
            "Messages of the bus: published, requested, failed, dropped because a reader is slow.",
            labels=["outcome"],
        )
        dropped = self._dropped + sum(each.dropped for each in self._subscriptions)
        messages.add_metric(["published"], self._published)
        messages.add_metric(["requested"], self._requested)
        messages.add_metric(["failed"], self._failed)
        messages.add_metric(["dropped"], dropped)
        yield messages


def _too_large(subject: str, data: bytes) -> LimitError:
    return LimitError(
        "The message exceeds the max_payload of the NATS server.",
        subject=subject,
        bytes=len(data),
    )
