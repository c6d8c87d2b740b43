"""What keeps a mirror up to date: one consumer of the bucket's stream, in order, which starts over whenever anything is odd.

It is odd when a message is missing, when nothing was heard for a while (the server sends heartbeats), when the connection
was lost, and when the stream is another one than before. A consumer that starts over goes on behind the last message that
came; the mirror is filled anew only where that would miss something: the stream is another, or went back, or entries that
we have not seen have been pruned from it.

What is far behind is asked for, a thousand messages at a time, before the consumer starts: a server sends a consumer as
much as the network takes, and the driver lets nothing else run while it reads it. The answers may come from a replica that
is behind the leader: it has an earlier part of the same stream, and the consumer goes on behind it.

Pruning is announced: the `horizon` row says up to where entries of rows that are gone may go, and they go only
`PRUNE_DELAY_SECONDS` later. Whoever hears of it in time has seen all of them before. What somebody else has written in its
place says nothing: then all that lies before it may have been pruned, until the sweep has put a horizon there again.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.layout import BucketNames
from keyhouse.engines.jetstream.message import entry
from keyhouse.engines.jetstream.mirror import Mirror
from keyhouse.errors import KeyhouseError, UnavailableError

HEARTBEAT_SECONDS: Final = 1
SILENCE_SECONDS: Final = 3.0
"""Without a message or a heartbeat for so long, the consumer is taken for lost: its node may be."""

PRUNE_DELAY_SECONDS: Final = 60
"""Between the announcement of a horizon and the pruning up to it."""

RESTART_SECONDS: Final = 0.1
"""Between two tries to start."""

BATCH_MESSAGES: Final = 1_000
"""Messages that are asked for at a time: the event loop is theirs while they come, about 40 ms."""

BATCH_BYTES: Final = 2 * 1_024 * 1_024

_SECOND: Final = 1_000_000_000


class Horizon(msgspec.Struct, frozen=True):
    """The row `horizon`: watches can't begin before it, and rows that are gone are pruned up to `pruned`."""

    horizon: int
    pruned: int
    at: int


class Feed:
    """`renew` makes a new, empty mirror, in place of the one that was fed before."""

    def __init__(
        self, connection: Connection, names: BucketNames, clock: Clock, renew: Callable[[], Mirror]
    ) -> None:
        self._connection = connection
        self._names = names
        self._clock = clock
        self._renew = renew
        self._mirror = renew()
        self._created = ""  # by when it was made, one knows a stream again
        self._run: _Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._odd = asyncio.Event()
        self.live = asyncio.Event()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._keep_up())

    def restart(self) -> None:
        """Something is odd."""
        self.live.clear()
        self._odd.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._end()
        self.live.clear()

    async def settle(self, last: int) -> None:
        """Nothing was delivered though the stream has come to `last`: find out whether anything is still to come."""
        newest = 0
        for subject in (self._names.rows, self._names.horizon):
            found = await self._connection.api(
                f"STREAM.MSG.GET.{self._names.stream}", last_by_subj=subject
            )
            if found is not None:
                newest = max(newest, found["message"]["seq"])
        if newest <= self._mirror.delivered:
            self._mirror.advance(last)
            self._check_live(last)

    async def _keep_up(self) -> None:
        while True:
            self._odd.clear()
            try:
                await self._begin()
                await self._watch_over()
            except KeyhouseError:
                await asyncio.sleep(RESTART_SECONDS)
            self.live.clear()
            await self._end()

    async def _begin(self) -> None:
        info = await self._connection.api(f"STREAM.INFO.{self._names.stream}")
        if info is None:
            raise UnavailableError(
                "The bucket is gone; it is made again by the next commit.",
                bucket=self._names.bucket,
            )
        last = info["state"]["last_seq"]
        if info["created"] != self._created or last < self._mirror.delivered:
            self._fill_anew()
            self._created = info["created"]
        filters = [self._names.rows]
        if set(self._names.all) <= set(info["config"]["subjects"]):
            filters.append(self._names.horizon)
            await self._check_horizon()
        await self._catch_up(last)
        if self._odd.is_set():
            return
        run = self._run = _Run(self._receive, self._connection.new_inbox(), last)
        run.subscription = await self._connection.subscribe(run.inbox, run.receive)
        made = await self._connection.api(
            f"CONSUMER.CREATE.{self._names.stream}",
            stream_name=self._names.stream,
            config=self._consumer(run, filters),
        )
        if made is None:
            raise UnavailableError(
                "The bucket is gone; it is made again by the next commit.",
                bucket=self._names.bucket,
            )
        run.consumer = made["name"]
        if made["num_pending"] == 0 and self._mirror.delivered < last:
            await self.settle(last)
        self._check_live(last)

    async def _check_horizon(self) -> None:
        """The newest, which may be one that we have not heard of, or that lies before what we ask for."""
        found = await self._connection.api(
            f"STREAM.MSG.GET.{self._names.stream}", last_by_subj=self._names.horizon
        )
        if found is not None and found["message"]["seq"] > self._mirror.horizon_sequence:
            self._announced(found["message"]["seq"], b64decode(found["message"].get("data", "")))

    async def _catch_up(self, last: int) -> None:
        """Ask for what is behind, while it is much."""
        while last - self._mirror.delivered > BATCH_MESSAGES and not self._odd.is_set():
            messages = await self._connection.request_many(
                f"DIRECT.GET.{self._names.stream}",
                seq=self._mirror.delivered + 1,
                next_by_subj=">",  # of all: for a part of the subjects, the server counts what is left, each time
                batch=BATCH_MESSAGES,
                max_bytes=BATCH_BYTES,
            )
            if not messages:
                return
            for message in messages:
                headers = message.headers or {}
                self._deliver(
                    int(headers["Nats-Sequence"]), headers["Nats-Subject"], headers, message.data
                )

    def _consumer(self, run: "_Run", filters: list[str]) -> dict[str, Any]:
        return {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._mirror.delivered + 1,
            "filter_subjects": filters,
            "deliver_subject": run.inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_SECONDS * _SECOND,
            "inactive_threshold": 5 * HEARTBEAT_SECONDS * _SECOND,
            "mem_storage": True,
            "num_replicas": 1,
        }

    async def _watch_over(self) -> None:
        """Until something is odd."""
        while self._run is not None and time.monotonic() - self._run.heard < SILENCE_SECONDS:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._odd.wait()
            except TimeoutError:
                if not self.live.is_set():
                    await self.settle(self._run.last)
            else:
                return

    async def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None and run.subscription is not None:
            await self._connection.unsubscribe(run.subscription)
            if run.consumer:  # it would go by itself; that it does so at once is not waited for
                await self._connection.publish_empty(
                    f"$JS.API.CONSUMER.DELETE.{self._names.stream}.{run.consumer}"
                )

    def _fill_anew(self) -> None:
        before, self._mirror = self._mirror, self._renew()
        before.close()

    async def _receive(self, run: "_Run", message: Msg) -> None:
        if run is not self._run or self._odd.is_set():
            return
        headers = message.headers
        if headers is not None and headers.get("Status") == "100":
            if stalled := headers.get("Nats-Consumer-Stalled") or message.reply:
                await self._connection.publish_empty(stalled)
            if headers.get("Nats-Last-Consumer", str(run.number)) != str(run.number):
                self.restart()
            return
        sequence, number, pending = _numbers(message.reply)
        run.number += 1
        if number != run.number:
            return self.restart()
        self._deliver(sequence, message.subject, headers, message.data)
        self._check_live(run.last)
        if pending == 0 and not self.live.is_set():
            with suppress(KeyhouseError):
                await self.settle(run.last)

    def _deliver(
        self, sequence: int, subject: str, headers: Mapping[str, str] | None, data: bytes
    ) -> None:
        if subject == self._names.horizon:
            self._announced(sequence, data)
            self._mirror.advance(sequence)
        elif (row_key := self._names.read(subject)) is not None:
            self._mirror.deliver(row_key, entry(sequence, headers), data)
        else:
            self._mirror.advance(sequence)

    def _announced(self, sequence: int, data: bytes) -> None:
        mirror, now = self._mirror, self._clock.now()
        horizon = _horizon(sequence, data)
        if horizon is None:
            horizon, late = Horizon(sequence - 1, 0, now), sequence != mirror.horizon_sequence
        else:
            late = now - horizon.at >= PRUNE_DELAY_SECONDS * 1_000
        if not mirror.loading and (late or horizon.pruned > mirror.horizon):
            self._created = ""  # what was pruned we may not have seen
            self.restart()
        else:
            mirror.prune(sequence, horizon.horizon, horizon.pruned, horizon.at)

    def _check_live(self, last: int) -> None:
        if (
            not self.live.is_set()
            and self._mirror.delivered >= last
            and self._mirror.finish_loading()
            and not self._odd.is_set()
        ):
            self.live.set()


class _Run:
    """One consumer, from its start until something is odd. `last`: where the stream was when it started."""

    def __init__(
        self, receive: Callable[["_Run", Msg], Awaitable[None]], inbox: str, last: int
    ) -> None:
        self._receive = receive
        self.inbox = inbox
        self.last = last
        self.number = 0
        self.heard = time.monotonic()
        self.consumer = ""
        self.subscription: Subscription | None = None

    async def receive(self, message: Msg) -> None:
        self.heard = time.monotonic()
        await self._receive(self, message)


def _horizon(sequence: int, data: bytes) -> Horizon | None:
    """What the row `horizon` says; `None`: nothing that we wrote."""
    try:
        found = msgspec.json.decode(data, type=Horizon)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if 0 <= found.pruned <= found.horizon < sequence else None


def _numbers(reply: str) -> tuple[int, int, int]:
    """The sequence in the stream, the number in the consumer, and how many follow; out of the subject on which a message is
    acknowledged: `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>`, or the same with a domain
    and an account in front."""
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 3])
