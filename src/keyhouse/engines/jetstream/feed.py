"""Keeps a mirror up to date with an ordered consumer of the bucket's stream, and restarts it.

Theory of operation
-------------------
One task runs the cycle *start, follow, tear down* until the feed is stopped. A cycle ends whenever
the consumer can no longer be trusted:

- a message is missing: the consumer's own numbering has a gap;
- the server is silent: no message and no heartbeat for `SILENCE_SECONDS`;
- the connection was lost, or the bucket's configuration changed (`restart`);
- the stream is a different one, or entries may have been pruned unseen.

The next cycle resumes after the last delivered message. It replaces the mirror by an empty one only
where resuming would miss something: the stream was created again, its last sequence is lower than
before (a restore), or tombstones that the mirror has not seen have been pruned.

| state     | meaning                                         | next                        |
|-----------|-------------------------------------------------|-----------------------------|
| STOPPED   | no task; the mirror is not updated              | STARTING: `start`           |
| STARTING  | reads the stream's state and its backlog        | FOLLOWING: consumer created |
| FOLLOWING | the consumer delivers; the mirror lags          | LIVE: target reached        |
| LIVE      | the mirror has everything up to the target      | STALE: consumer lost        |
| STALE     | messages are ignored; the consumer is torn down | STARTING: the next cycle    |
| CLOSED    | stopped for good; waiters for LIVE are released | none                        |

Every running state goes to STALE on a fault or `restart`, and to STOPPED on `stop`. The target is
the stream's last sequence when the cycle started.

A LIVE mirror lags the stream only by messages in flight. Readers that need more wait for a sequence
(`Bucket.wait_for`); `settle` resolves the case that the awaited messages no longer exist.

A bucket of a million rows is loaded by the same consumer, message by message as they are on the
wire. The server keeps a bounded number of bytes under way (flow control), and the client lets other
tasks run between every few hundred messages, so neither memory nor the event loop is flooded.

Pruning is announced. The `horizon` message states up to where tombstones may be purged; they are
purged `PRUNE_DELAY_SECONDS` later. A feed that receives the message in time has seen all of them. A
foreign message at that subject states nothing: everything before it may have been pruned, until the
sweep writes a valid horizon again. An erased space is announced as well (`erasure`), after its
messages were purged: the mirror drops what it holds of them.
"""

import asyncio
import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.layout import BucketNames
from keyhouse.engines.jetstream.message import entry
from keyhouse.engines.jetstream.mirror import Mirror, MirrorState
from keyhouse.errors import KeyhouseError, UnavailableError
from keyhouse.nats.client import HandlerSubscription

HEARTBEAT_SECONDS: Final = 1
SILENCE_SECONDS: Final = 3.0
"""Without a message or heartbeat for this long, the consumer counts as lost."""

PRUNE_DELAY_SECONDS: Final = 60
"""Delay between announcing a horizon and purging up to it."""

RESTART_SECONDS: Final = 0.1
"""Delay before a failed start is retried."""

_SECOND: Final = 1_000_000_000
_CONTROL: Final = b"NATS/1.0 100"
"""A heartbeat, or a request of flow control."""

_STALLED: Final = re.compile(rb"\r\nNats-Consumer-Stalled: *([^\r ]+)")
_LAST_NUMBER: Final = re.compile(rb"\r\nNats-Last-Consumer: *(\d+)")

_UNKNOWN_STREAM: Final = ""


class FeedState(Enum):
    STOPPED = auto()
    STARTING = auto()
    FOLLOWING = auto()
    LIVE = auto()
    STALE = auto()
    CLOSED = auto()


class HorizonRecord(msgspec.Struct, frozen=True):
    """The `horizon` message. Watches cannot resume before `horizon`; tombstones are purged up to
    `pruned`."""

    horizon: int
    pruned: int
    at: int


class ErasedRecord(msgspec.Struct, frozen=True):
    """The `erased` message: the space's messages up to the sequence `upto` have been purged."""

    upto: int


class Feed:
    """`renew` makes a new, empty mirror that replaces the previous one."""

    def __init__(
        self,
        connection: Connection,
        names: BucketNames,
        clock: Clock,
        renew: Callable[[], Mirror],
    ) -> None:
        self._connection = connection
        self._names = names
        self._clock = clock
        self._renew = renew
        self._mirror = renew()
        self._stream_created = _UNKNOWN_STREAM
        """Creation time of the mirrored stream: identifies it across a delete and re-create."""
        self._has_horizon: bool | None = None
        """True if the stream had the engine's own subjects when the cycle started."""
        self._consumer: _Consumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()
        self.live = asyncio.Event()
        """Set while LIVE, and when CLOSED so that waiters wake up."""
        self.state = FeedState.STOPPED
        self.target = 0
        """The stream's last sequence when the cycle started."""

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def restart(self) -> None:
        """End the current cycle: the consumer can no longer be trusted."""
        if self.state not in (FeedState.STOPPED, FeedState.CLOSED):
            self._enter(FeedState.STALE)

    def follow(self, info: Mapping[str, Any]) -> bool:
        """Restart if the stream is a different one, or has got the subjects of the engine, since
        the feed started. Returns whether the mirror is of this stream and lacks nothing of it: then
        it can be read even without a consumer."""
        if self._stream_created not in (_UNKNOWN_STREAM, info["created"]):
            self.restart()
        elif self._has_horizon is False and set(self._names.all) <= set(info["config"]["subjects"]):
            self._has_horizon = None
            self.restart()
        return (
            self._stream_created == info["created"]
            and self._mirror.state is MirrorState.SERVING
            and self._mirror.position == info["state"]["last_seq"]
        )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._tear_down()
        self._enter(FeedState.STOPPED)

    async def close(self) -> None:
        await self.stop()
        self._enter(FeedState.CLOSED)

    async def settle(self, last: int) -> None:
        """Advance the mirror to `last` if the stream holds no undelivered message up to there.

        A message can be replaced or purged before it is delivered; nothing would ever arrive.
        """
        newest = 0
        for subject in self._names.followed:
            answer = await self._connection.api(
                f"STREAM.MSG.GET.{self._names.stream}", last_by_subj=subject
            )
            if answer is not None:
                newest = max(newest, answer["message"]["seq"])
        if newest <= self._mirror.delivered:
            self._mirror.advance(last)
            self._check_live(last)

    def _enter(self, state: FeedState) -> None:
        self.state = state
        if state in (FeedState.LIVE, FeedState.CLOSED):
            self.live.set()
        else:
            self.live.clear()
        if state is FeedState.STALE:
            self._wakeup.set()

    async def _run(self) -> None:
        while True:
            self._wakeup.clear()
            self._enter(FeedState.STARTING)
            try:
                await self._start_consumer()
                await self._follow()
            except KeyhouseError:
                await asyncio.sleep(RESTART_SECONDS)
            self._enter(FeedState.STALE)
            await self._tear_down()

    async def _start_consumer(self) -> None:
        info = await self._connection.api(f"STREAM.INFO.{self._names.stream}")
        if info is None:
            raise self._bucket_missing()
        self.target = last = info["state"]["last_seq"]
        if info["created"] != self._stream_created or last < self._mirror.delivered:
            self.replace_mirror()
            self._stream_created = info["created"]
        self._has_horizon = set(self._names.all) <= set(info["config"]["subjects"])
        if self._has_horizon:
            await self._check_horizon()
        consumer = self._consumer = _Consumer(self._receive, self._connection.new_inbox(), last)
        consumer.subscription = await self._connection.subscribe(consumer.inbox, consumer.receive)
        created = await self._connection.api(
            # Named, so that a repeated request creates no second one.
            f"CONSUMER.CREATE.{self._names.stream}.{consumer.name}",
            stream_name=self._names.stream,
            config=self._consumer_config(
                consumer, self._names.followed if self._has_horizon else [self._names.rows]
            ),
        )
        if created is None:
            raise self._bucket_missing()
        if self.state is FeedState.STARTING:
            self._enter(FeedState.FOLLOWING)
        if created["num_pending"] == 0 and self._mirror.delivered < last:
            await self.settle(last)
        self._check_live(last)

    def _bucket_missing(self) -> UnavailableError:
        return UnavailableError(
            "The bucket does not exist; the next commit creates it again.",
            bucket=self._names.bucket,
        )

    async def _check_horizon(self) -> None:
        """Apply the newest horizon, which may lie before the first message to be requested."""
        answer = await self._connection.api(
            f"STREAM.MSG.GET.{self._names.stream}", last_by_subj=self._names.horizon
        )
        if answer is not None and answer["message"]["seq"] > self._mirror.horizon_sequence:
            self._on_horizon(answer["message"]["seq"], b64decode(answer["message"].get("data", "")))

    def _consumer_config(self, consumer: "_Consumer", filters: list[str]) -> dict[str, Any]:
        return {
            "name": consumer.name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._mirror.delivered + 1,
            "filter_subjects": filters,
            "deliver_subject": consumer.inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_SECONDS * _SECOND,
            "inactive_threshold": 5 * HEARTBEAT_SECONDS * _SECOND,
            "mem_storage": True,
            "num_replicas": 1,
        }

    async def _follow(self) -> None:
        """Return when the feed is stale or the server has been silent for too long."""
        received = 0
        while (consumer := self._consumer) and not consumer.is_silent:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._wakeup.wait()
            if self.state is FeedState.STALE:
                return
            if self.state is not FeedState.LIVE and (
                self._wakeup.is_set() or consumer.received == received
            ):
                self._wakeup.clear()
                await self.settle(consumer.target)
            received = consumer.received

    async def _tear_down(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None and consumer.subscription is not None:
            await self._connection.unsubscribe(consumer.subscription)
            # It would expire by itself, so no reply is awaited.
            self._connection.publish_empty(
                f"$JS.API.CONSUMER.DELETE.{self._names.stream}.{consumer.name}"
            )

    def replace_mirror(self) -> None:
        before, self._mirror = self._mirror, self._renew()
        before.close()

    def _receive(
        self, consumer: "_Consumer", subject: bytes, reply: bytes, headers: bytes, data: bytes
    ) -> None:
        if consumer is not self._consumer or self.state is FeedState.STALE:
            return
        if headers.startswith(_CONTROL):
            self._on_control(consumer, reply, headers)
            return
        sequence, number, pending = _positions(reply)
        if number != consumer.received + 1:
            self.restart()
            return
        self._deliver(sequence, subject.decode(errors="replace"), headers, data)
        consumer.received = number
        if self.state is not FeedState.LIVE:
            self._check_live(consumer.target)
            if not pending:
                self._wakeup.set()  # settles what will not arrive

    def _on_control(self, consumer: "_Consumer", reply: bytes, headers: bytes) -> None:
        stalled = _STALLED.search(headers)
        if stalled or reply:
            self._connection.publish_empty((stalled[1] if stalled else reply).decode())
        last = _LAST_NUMBER.search(headers)
        if last and int(last[1]) != consumer.received:
            self.restart()

    def _deliver(self, sequence: int, subject: str, headers: bytes, data: bytes) -> None:
        if (row_key := self._names.read(subject)) is not None:
            self._mirror.deliver(row_key, entry(sequence, headers), data)
            return
        if subject == self._names.horizon:
            self._on_horizon(sequence, data)
        elif (digest := self._names.erased_digest(subject)) is not None:
            self._on_erased(digest, data)
        self._mirror.advance(sequence)

    def _on_erased(self, digest: str, data: bytes) -> None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # written by another program
            self._mirror.erase(digest, msgspec.json.decode(data, type=ErasedRecord).upto)

    def _on_horizon(self, sequence: int, data: bytes) -> None:
        mirror, now = self._mirror, self._clock.now()
        record = _parse_horizon(sequence, data)
        if record is None:
            record = HorizonRecord(sequence - 1, 0, now)
            is_late = sequence != mirror.horizon_sequence
        else:
            is_late = now - record.at >= PRUNE_DELAY_SECONDS * 1_000
        is_serving = mirror.state is MirrorState.SERVING
        if is_serving and (is_late or record.pruned > mirror.horizon):
            # Tombstones that this mirror has not seen may be gone: load it again.
            self._stream_created = _UNKNOWN_STREAM
            self.restart()
        else:
            mirror.prune(sequence, record.horizon, record.pruned, record.at)

    def _check_live(self, target: int) -> None:
        if (
            self.state in (FeedState.STARTING, FeedState.FOLLOWING)
            and self._mirror.delivered >= target
            and self._mirror.finish_loading()
        ):
            self._enter(FeedState.LIVE)


class _Consumer:
    """The consumer of one cycle. `target`: the stream's last sequence when it started."""

    def __init__(
        self,
        receive: Callable[["_Consumer", bytes, bytes, bytes, bytes], None],
        inbox: str,
        target: int,
    ) -> None:
        self._receive = receive
        self.inbox = inbox
        self.target = target
        self.received = 0
        self._last_heard = time.monotonic()
        self.name = inbox.rpartition(".")[2]
        self.subscription: HandlerSubscription | None = None

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._last_heard >= SILENCE_SECONDS

    def receive(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        self._last_heard = time.monotonic()
        self._receive(self, subject, reply, headers, data)


def _parse_horizon(sequence: int, data: bytes) -> HorizonRecord | None:
    """Return the record, or None if Keyhouse did not write the message."""
    try:
        record = msgspec.json.decode(data, type=HorizonRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return record if 0 <= record.pruned <= record.horizon < sequence else None


def _positions(reply: bytes) -> tuple[int, int, bool]:
    """Return stream sequence and consumer sequence, and whether more messages are pending, from a
    message's reply subject.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>`, or the same
    with domain and account after `$JS.ACK`.
    """
    tokens = reply.split(b".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), tokens[at + 3] != b"0"
