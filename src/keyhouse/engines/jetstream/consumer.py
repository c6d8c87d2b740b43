"""An ordered consumer: the messages of a bucket's stream from a sequence on, without a gap.

Theory of operation
-------------------
The client pulls: two requests for a batch are under way, and another is sent when one is used up.
So the server never waits for a request, and no more than a few MiB are ever on their way: replies
to other requests on the connection are not behind the rows of a whole bucket, however fast the
server is. Messages are handled as they are on the wire, and other tasks run between every few
hundred of them.

| the server sends              | meaning                                   | reaction             |
|-------------------------------|-------------------------------------------|----------------------|
| a message                     | the next one, numbered by the consumer    | deliver; a gap: lost |
| a status with pending numbers | a request ended, by its bytes or its time | request another      |
| a heartbeat                   | all is delivered up to its number         | another number: lost |
| any other status              | the consumer, or its leader, is gone      | lost                 |
| nothing for SILENCE_SECONDS   | the server hangs                          | lost                 |

A consumer that is lost delivers nothing more; the feed replaces it.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.message import Message
from keyhouse.nats.client import HandlerSubscription

HEARTBEAT_SECONDS: Final = 1
SILENCE_SECONDS: Final = 3.0
"""Without a message or heartbeat for this long, the consumer counts as lost."""

BATCH_MESSAGES: Final = 1_000
BATCH_BYTES: Final = 2 * 1_024 * 1_024
"""A request ends after so many messages or bytes."""

REQUEST_SECONDS: Final = 30
"""A request ends after this time, too: a client that is gone leaves none behind."""

_SECOND: Final = 1_000_000_000
_STATUS: Final = b"NATS/1.0 "
_HEARTBEAT: Final = b"NATS/1.0 100"
_LAST_NUMBER: Final = re.compile(rb"\nNats-Last-Consumer: *(\d+)\r")
_UNDELIVERED: Final = re.compile(rb"\nNats-Pending-Messages: *(\d+)\r")

Deliver = Callable[[int, bytes, bytes, bytes], None]
"""Receives a message: its sequence in the stream, subject, headers and data."""


class Consumer:
    """`wake` is called when `is_lost`, `is_drained` or `needs_request` has become true."""

    def __init__(
        self, connection: Connection, stream: str, deliver: Deliver, wake: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._deliver = deliver
        self._wake = wake
        self._inbox = connection.new_inbox()
        self._name = self._inbox.rpartition(".")[2]
        self._subscription: HandlerSubscription | None = None
        self._requested = 0
        self._last_heard = time.monotonic()
        self._is_lost = False
        self.received = 0
        self.is_drained = False
        """True if the stream had no further message when the last one was sent."""

    @property
    def is_lost(self) -> bool:
        return self._is_lost or time.monotonic() - self._last_heard >= SILENCE_SECONDS

    @property
    def needs_request(self) -> bool:
        return self._requested - self.received <= BATCH_MESSAGES

    async def start(self, first: int, subjects: Sequence[str]) -> bool:
        """Create it, to deliver messages from the sequence `first` on; return whether the stream
        exists."""
        self._subscription = await self._connection.subscribe(self._inbox, self._receive)
        config = {
            "name": self._name,  # a request that is repeated creates no second one
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "filter_subjects": subjects,
            "ack_policy": "none",
            "max_deliver": 1,
            "inactive_threshold": 5 * HEARTBEAT_SECONDS * _SECOND,
            "mem_storage": True,
            "num_replicas": 1,
        }
        created: dict[str, Any] | None = await self._connection.api(
            f"CONSUMER.CREATE.{self._stream}.{self._name}", stream_name=self._stream, config=config
        )
        if created is not None:
            self.is_drained = created["num_pending"] == 0
        return created is not None

    async def request(self) -> None:
        """Request messages until two batches are under way."""
        while self.needs_request:
            self._requested += BATCH_MESSAGES
            body = {
                "batch": BATCH_MESSAGES,
                "max_bytes": max(BATCH_BYTES, self._connection.client.max_payload),
                "expires": REQUEST_SECONDS * _SECOND,
                "idle_heartbeat": HEARTBEAT_SECONDS * _SECOND,
            }
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            await self._connection.send(
                [Message(subject, msgspec.json.encode(body), {})], self._inbox
            )

    async def stop(self) -> None:
        """Delete it. It would expire by itself, so no reply is awaited."""
        self._is_lost = True
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)
            self._connection.publish_empty(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}")

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        if self._is_lost:
            return
        self._last_heard = time.monotonic()
        if headers.startswith(_STATUS):
            self._on_status(headers)
            return
        sequence, number, self.is_drained = _positions(reply)
        if number != self.received + 1:
            self._lose()
            return
        self._deliver(sequence, subject, headers, data)
        self.received = number
        if self.is_drained or self.needs_request:
            self._wake()

    def _on_status(self, headers: bytes) -> None:
        if headers.startswith(_HEARTBEAT):
            last = _LAST_NUMBER.search(headers)
            if last and int(last[1]) != self.received:
                self._lose()
        elif undelivered := _UNDELIVERED.search(headers):
            self._requested -= int(undelivered[1])
            self._wake()
        else:
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self._wake()


def _positions(reply: bytes) -> tuple[int, int, bool]:
    """Return stream sequence and consumer sequence, and whether no more messages are pending, from
    a message's reply subject.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>`, or the same
    with domain and account after `$JS.ACK`.
    """
    tokens = reply.split(b".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), tokens[at + 3] == b"0"
