"""Group commit on a JetStream bucket: see `keyhouse.engines.task_commit_queue`.

An atomic batch costs the server ten times as much as a message, nearly independent of its size. So
a group of one message is sent as one message, a few writes of one message each as pipelined
messages, and anything else as one atomic batch. In it each write is a separate commit, with its
own revision.

Writes are optimistic. A group is planned on the mirror; every message carries the sequence expected
of its row, which the server checks when it writes. So nothing planned on a stale state is ever
written, and neither is a message that arrives late. One group goes through these steps:

    step      next
    -------   -------------------------------------------------------------------------------------
    plan      every write has messages, or the mirror is fresh    -> send
              a write is to be rejected, on a mirror that may be
              stale                                               -> refresh
    send      written                                             -> settled
              a row was not at its expected sequence              -> refresh, with half of the group
              one write may have caused an error                  -> refresh, with half of the group
              an error of the server                              -> settled
    refresh   the mirror has caught up                            -> plan

Writes of one process therefore never lose a race among themselves, and among processes one always
gets through. The halves that are split off go back to the queue.
"""

import asyncio
import random
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.error_map import MISMATCH, Ack, too_large, translate
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED,
    MESSAGES_MAX,
    Entry,
    Message,
)
from keyhouse.engines.jetstream.pending import (
    OWN_ERRORS,
    Applied,
    CheckFailed,
    JetstreamCommit,
    JetstreamWrite,
    Overlay,
    ValueNotCached,
)
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.engines.task_commit_queue import LaneGroup, LanePool, TaskCommitQueue
from keyhouse.errors import (
    ClosedError,
    CounterError,
    KeyhouseError,
    UnavailableError,
    UnreadableError,
)

GROUP_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Bytes of values in one group."""

PIPELINED_MAX: Final = 8
"""Writes of one message each that are pipelined; more are written sooner as one batch."""

ATTEMPTS_MAX: Final = 200
"""Attempts of a write that keeps losing races to other processes."""

IDS_CACHED: Final = 4_096
"""Batch ids that this process applied, and need not look up."""

RECENT_MAX: Final = 4_096
"""Rows just written that the mirror may not show yet; with more, the writer waits for it."""

COUNTER_BYTES: Final = 64
"""Bytes of their values that are cached: a counter is shorter, and a longer value is not one."""

_NEVER: Final = (0, Applied(-(2**62), 0))

_decode_ack = msgspec.json.Decoder(Ack).decode


class _Plan(NamedTuple):
    """The messages of one write, or the reason why it has none."""

    write: JetstreamWrite
    messages: list[Message]
    rejection: CheckFailed | CounterError | None = None

    @property
    def is_plain(self) -> bool:
        """True for a single message that needs no other to be valid."""
        return len(self.messages) == 1 and EXPECTED in self.messages[0].headers


Outcome = int | KeyhouseError | None
"""The last message's sequence, or the failure; None: a row was not at its expected sequence."""


class JetstreamGroup(LaneGroup[JetstreamWrite]):
    """Holds no two commits of one batch id: the second must see that the first was applied."""

    ROWS_MAX = MESSAGES_MAX
    BYTES_MAX = GROUP_BYTES_MAX

    __slots__ = ("_ids",)

    def __init__(self, pool: LanePool) -> None:
        super().__init__(pool)
        self._ids: set[tuple[str, str]] = set()

    def add(self, write: JetstreamWrite) -> bool:
        identity = _identity(write)
        if identity in self._ids or not super().add(write):
            return False
        if identity is not None:
            self._ids.add(identity)
        return True


class JetstreamWriter(TaskCommitQueue[JetstreamWrite]):
    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        super().__init__(LanePool(workers_max=1))
        self._bucket = bucket
        self._clock = clock
        self._applied: dict[tuple[str, str], tuple[int, Applied]] = {}
        self._applied_at = (0, 0)
        """The bucket's mirrors, and the spaces erased in its last, when ids were cached last."""
        self._recent: dict[RowKey, tuple[Entry, bytes]] = {}

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("The engine is closed.")

    def _new_group(self, pool: LanePool) -> JetstreamGroup:
        return JetstreamGroup(pool)

    async def _apply(self, group: LaneGroup[JetstreamWrite]) -> None:
        """Settle writes as soon as their outcome is certain; the group keeps the rest."""
        fresh = False
        for attempt in range(ATTEMPTS_MAX):
            self._settle_repeated(group)
            if not group.writes:
                return
            await self._bucket.wait_live()
            plans = await self._plan(group)
            if not fresh and not all(plan.messages for plan in plans):
                await self._refresh(group, [plan.write for plan in plans if not plan.messages])
                fresh = True
                continue
            outcomes = await self._send_all([plan for plan in plans if plan.messages])
            self._settle(group, plans, outcomes)
            if group.writes:
                await self._refresh(group, group.writes)
                fresh = True
                await self._back_off(group, attempt)
        raise UnavailableError(
            "Other writers were faster at every attempt; try again.", attempts=ATTEMPTS_MAX
        )

    def _settle_repeated(self, group: LaneGroup[JetstreamWrite]) -> None:
        """Settle the commits whose batch id is known to have been applied before."""
        now = self._clock.now()
        state = self._bucket.mirrors, self._bucket.mirror.erasures
        if self._applied_at != state:
            self._applied_at = state
            self._applied.clear()  # the server has those that were not erased
        repeated = []
        for write in group.writes:
            identity = _identity(write)
            if identity is not None:
                revision, applied = self._applied.get(identity, _NEVER)
                if not applied.expired(now):
                    write.stage(revision)
                    write.settle()
                    repeated.append(write)
        if repeated:
            group.remove(repeated)

    async def _refresh(
        self, group: LaneGroup[JetstreamWrite], writes: Sequence[JetstreamWrite]
    ) -> None:
        """Bring the mirror up to date, and look up which of the writes were applied before."""
        await until_available(self._bucket.sync)
        for write in tuple(writes):
            if isinstance(write, JetstreamCommit) and write.batch.id is not None:
                try:
                    await self._look_up(write, write.batch.id)
                except UnreadableError as error:
                    write.settle(error)
                    group.remove([write])

    async def _look_up(self, write: JetstreamCommit, batch_id: str) -> None:
        subject = self._bucket.names.id(write.space, batch_id)
        message = await until_available(lambda: self._bucket.last_message(subject))
        write.id_sequence = 0 if message is None else message["seq"]
        if message is not None:
            applied = Applied.read(subject, message.get("data", ""))
            if not applied.expired(self._clock.now()):
                revision = message["seq"] + applied.following
                self._cache_id((write.space, batch_id), revision, applied.at)

    async def _plan(self, group: LaneGroup[JetstreamWrite]) -> list[_Plan]:
        fetched: dict[int, bytes] = {}
        if len(self._recent) > RECENT_MAX:
            await self._bucket.wait_for(self._bucket.acknowledged)
        while True:
            if self._bucket.mirror.position >= self._bucket.acknowledged:
                self._recent.clear()
            overlay = Overlay(
                self._bucket.mirror, self._recent, fetched, self._bucket.names, self._clock
            )
            try:
                return [_planned(write, overlay) for write in group.writes]
            except ValueNotCached as missing:
                value = await self._bucket.value(missing.entry)
                if value is None:
                    await until_available(self._bucket.sync)
                else:
                    fetched[missing.entry.sequence] = value

    async def _send_all(self, plans: list[_Plan]) -> list[Outcome]:
        """Send the messages of the plans; return the outcome of each."""
        if len(plans) == 1:
            return [await self._send(plans[0].messages)]
        if len(plans) <= PIPELINED_MAX and all(plan.is_plain for plan in plans):
            return await asyncio.gather(*(self._send(plan.messages) for plan in plans))
        messages = [message for plan in plans for message in plan.messages]
        outcome = await self._send(messages)
        if isinstance(outcome, KeyhouseError) and not self._is_shared(outcome):
            return [None] * len(plans)  # smaller groups will show which write caused it
        if not isinstance(outcome, int):
            return [outcome] * len(plans)
        sequence = outcome - len(messages)
        outcomes: list[Outcome] = []
        for plan in plans:
            sequence += len(plan.messages)
            outcomes.append(sequence)
        return outcomes

    async def _send(self, messages: list[Message]) -> Outcome:
        async def send() -> Ack:
            batch, limit = _as_batch(messages), self._bucket.message_bytes_max
            if limit and any(message.bytes > limit for message in batch):
                raise too_large(limit)
            ack = _decode_ack((await self._bucket.connection.request(batch)).data)
            if ack.error is not None and ack.error.err_code not in MISMATCH:
                raise translate(ack.error)
            return ack

        try:
            ack = await until_available(send)
        except KeyhouseError as error:
            return error
        if ack.error is not None:
            return None
        self._bucket.acknowledged = max(self._bucket.acknowledged, ack.seq)
        return ack.seq

    def _settle(
        self, group: LaneGroup[JetstreamWrite], plans: list[_Plan], outcomes: list[Outcome]
    ) -> None:
        """Settle the writes whose outcome is certain, and remove them from the group.

        A rejection may be due to an earlier write of the group: it is final only if all messages
        of the group are written.
        """
        all_written = all(isinstance(outcome, int) for outcome in outcomes)
        remaining = iter(outcomes)
        settled = []
        for plan in plans:
            outcome = next(remaining) if plan.messages else None
            if isinstance(outcome, KeyhouseError):
                plan.write.settle(outcome)
            elif outcome is not None:
                self._succeed(plan, outcome)
            elif plan.messages or not all_written:
                continue
            else:
                self._reject(plan)
            settled.append(plan.write)
        group.remove(settled)

    def _succeed(self, plan: _Plan, sequence: int) -> None:
        for number, message in enumerate(plan.messages, sequence - len(plan.messages) + 1):
            if (row_key := message.row_key) is not None:
                self._recent[row_key] = (message.entry(number), message.value[:COUNTER_BYTES])
        if (identity := _identity(plan.write)) is not None:
            self._cache_id(identity, sequence, self._clock.now())
        plan.write.stage(sequence)
        plan.write.settle()

    def _reject(self, plan: _Plan) -> None:
        if isinstance(plan.rejection, CounterError):
            plan.write.error = plan.rejection
        else:
            checked = plan.rejection is None  # the checks hold, and there was nothing to write
            plan.write.stage(self._bucket.mirror.position if checked else None)
        plan.write.settle()

    def _cache_id(self, identity: tuple[str, str], revision: int, at: int) -> None:
        self._applied.pop(identity, None)
        self._applied[identity] = (revision, Applied(at, 0))
        if len(self._applied) > IDS_CACHED:
            del self._applied[next(iter(self._applied))]

    async def _back_off(self, group: LaneGroup[JetstreamWrite], attempt: int) -> None:
        """Split a rejected group in half; for a single write, compare its rows with the server."""
        if len(group.writes) > 1:
            self._put_back(group, group.writes[len(group.writes) // 2 :])
        elif group.writes and attempt > 1:
            await self._bucket.reconcile(group.writes[0].row_keys())
            await asyncio.sleep(random.uniform(0, 0.002 * min(attempt, 20)))


def _planned(write: JetstreamWrite, overlay: Overlay) -> _Plan:
    try:
        return _Plan(write, write.plan(overlay))
    except OWN_ERRORS as rejection:
        return _Plan(write, [], rejection)


def _identity(write: JetstreamWrite) -> tuple[str, str] | None:
    return write.identity if isinstance(write, JetstreamCommit) else None


def _as_batch(messages: list[Message]) -> list[Message]:
    """Mark several messages as one atomic batch; a single one is sent as it is."""
    if len(messages) > 1:
        batch_id = secrets.token_hex(12)
        for number, message in enumerate(messages, 1):
            message.headers[BATCH_ID] = batch_id
            message.headers[BATCH_SEQUENCE] = str(number)
        messages[-1].headers[BATCH_COMMIT] = "1"
    return messages
