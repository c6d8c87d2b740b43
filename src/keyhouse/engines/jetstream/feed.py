"""Keeps a mirror up to date with an ordered consumer of the bucket's stream, and replaces it.

Theory of operation
-------------------
One task runs the cycle *start, follow, tear down* until the feed is stopped. A cycle ends whenever
the consumer can no longer be trusted:

- the consumer is lost: a message is missing, or the server is silent;
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

The consumer (`consumer`) also loads the bucket: there is no other way for the backlog.

Pruning is announced. The `horizon` message states up to where tombstones may be purged; they are
purged `PRUNE_DELAY_SECONDS` later. A feed that receives the message in time has seen all of them. A
foreign message at that subject states nothing: everything before it may have been pruned, until the
sweep writes a valid horizon again. An erased space is announced as well (`erasure`), after its
messages were purged: the mirror drops what it holds of them.
"""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.consumer import HEARTBEAT_SECONDS, Consumer
from keyhouse.engines.jetstream.layout import BucketNames
from keyhouse.engines.jetstream.message import entry
from keyhouse.engines.jetstream.mirror import Mirror, MirrorState
from keyhouse.errors import KeyhouseError, UnavailableError

PRUNE_DELAY_SECONDS: Final = 60
"""Delay between announcing a horizon and purging up to it."""

RESTART_SECONDS: Final = 0.1
"""Delay before a failed start is retried."""

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
        self._consumer: Consumer | None = None
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
            self._enter(FeedState.STARTING)
            try:
                await self._follow(await self._start_consumer())
            except KeyhouseError:
                await asyncio.sleep(RESTART_SECONDS)
            self._enter(FeedState.STALE)
            await self._tear_down()

    async def _start_consumer(self) -> Consumer:
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
        consumer = self._consumer = Consumer(
            self._connection, self._names.stream, self._deliver, self._wakeup.set
        )
        subjects = self._names.followed if self._has_horizon else [self._names.rows]
        if not await consumer.start(self._mirror.delivered + 1, subjects):
            raise self._bucket_missing()
        if self.state is FeedState.STARTING:
            self._enter(FeedState.FOLLOWING)
        if consumer.is_drained and self._mirror.delivered < last:
            await self.settle(last)
        self._check_live(last)
        return consumer

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

    async def _follow(self, consumer: Consumer) -> None:
        """Return when the feed is stale or the consumer is lost."""
        received = -1
        while self.state is not FeedState.STALE and not consumer.is_lost:
            self._wakeup.clear()
            await consumer.request()
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._wakeup.wait()
                is_idle = consumer.is_drained
            except TimeoutError:
                is_idle, received = consumer.received == received, consumer.received
            if is_idle and self.state is FeedState.FOLLOWING:
                await self.settle(self.target)

    async def _tear_down(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    def replace_mirror(self) -> None:
        before, self._mirror = self._mirror, self._renew()
        before.close()

    def _deliver(self, sequence: int, subject_bytes: bytes, headers: bytes, data: bytes) -> None:
        if self.state is FeedState.STALE:
            return
        subject = subject_bytes.decode(errors="replace")
        if (row_key := self._names.read(subject)) is not None:
            self._mirror.deliver(row_key, entry(sequence, headers), data)
        else:
            self._deliver_own(sequence, subject, data)
        if self.state is not FeedState.LIVE:
            self._check_live(self.target)

    def _deliver_own(self, sequence: int, subject: str, data: bytes) -> None:
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


def _parse_horizon(sequence: int, data: bytes) -> HorizonRecord | None:
    """Return the record, or None if Keyhouse did not write the message."""
    try:
        record = msgspec.json.decode(data, type=HorizonRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return record if 0 <= record.pruned <= record.horizon < sequence else None
