"""Group commit: whatever is asked for while one group is being written becomes the next group.

An atomic batch costs the server ten times what a message costs, nearly whatever its size; so what comes together is sent
together. A group that is one message is sent as one message, and a few jobs of one message each as that, one behind the
other without waiting; anything else is one atomic batch. In it each job is a commit of its own, with its own revision.

Writes are optimistic. A group is planned on the mirror; every message carries the sequence it expects of its row, checked
by the server in the moment of writing, so nothing that is planned on an old state is ever written, and neither is a message
that comes late. When the server refuses, or when a job is to be refused because of what the mirror shows, the mirror is
brought up to date first and the group planned again; a group that is refused again is made smaller. So among the jobs of
one process there are no lost races at all, and between processes somebody always comes through.
"""

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.error_map import MISMATCH, Ack, is_outage, too_large, translate
from keyhouse.engines.jetstream.job import (
    MESSAGES_MAX,
    REFUSALS,
    Applied,
    CheckFailed,
    CommitJob,
    Job,
    Result,
    ValueNotCached,
    View,
)
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED,
    Entry,
    Message,
    entry,
)
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.errors import (
    ClosedError,
    CounterError,
    KeyhouseError,
    UnavailableError,
    UnreadableError,
)

GROUP_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Values in one group."""

PLAIN_MAX: Final = 8
"""Jobs of one message each that are still sent one by one: more are sooner written as one batch."""

ATTEMPTS_MAX: Final = 200
"""Tries of a job that other processes keep getting in front of."""

IDS_KEPT: Final = 4_096
"""Batch ids that we applied ourselves, and so need not ask for."""

_decode_ack = msgspec.json.Decoder(Ack).decode


RECENT_MAX: Final = 4_096
"""Rows that we have written and that the mirror may not show yet; with more, it is waited for."""

COUNTER_BYTES: Final = 64
"""What is kept of their values: a counter has less, and what has more is none."""

_NEVER: Final = (0, Applied(-(2**62), 0))


class _Part(NamedTuple):
    """One job of a group, planned: its messages, or why it has none."""

    job: Job[Any]
    messages: list[Message]
    refusal: CheckFailed | CounterError | None = None

    @property
    def is_plain(self) -> bool:
        """One message that stands for itself."""
        return len(self.messages) == 1 and EXPECTED in self.messages[0].headers


Outcome = int | KeyhouseError | None
"""The sequence of the last message; or what went wrong; `None`: a row was not as expected."""


class Writer:
    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._queue: deque[Job[Any]] = deque()
        self._group: list[Job[Any]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._applied: dict[tuple[str, str], tuple[int, Applied]] = {}
        self._recent: dict[RowKey, tuple[Entry, bytes]] = {}

    async def submit(self, job: Job[Result]) -> Result:
        """The job's answer, when it is written. A caller that is cancelled before its group begins takes the job back."""
        if self._closed:
            raise ClosedError("The engine is closed.")
        self._queue.append(job)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        return await job.future

    async def stop(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._take():
                try:
                    await self._commit()
                except Exception as error:
                    for job in self._group:
                        job.fail(error)
        finally:
            self._task = None

    def _take(self) -> list[Job[Any]]:
        """The next group, without what was cancelled; empty only when nothing waits."""
        self._group = []
        messages = size = 0
        ids: set[tuple[str, str]] = set()
        while self._queue:
            job = self._queue[0]
            messages += job.messages
            size += job.bytes
            identity = _identity(job)
            if self._group and (
                messages > MESSAGES_MAX or size > GROUP_BYTES_MAX or identity in ids
            ):
                break
            self._queue.popleft()
            if not job.future.cancelled():
                self._group.append(job)
                if identity is not None:
                    ids.add(identity)
        return self._group

    async def _commit(self) -> None:
        fresh = False
        for attempt in range(ATTEMPTS_MAX):
            self._answer_repeated()
            if not self._group:
                return
            await self._bucket.wait_live()
            parts = await self._planned()
            if not fresh and not all(part.messages for part in parts):
                await self._refresh([part.job for part in parts if not part.messages])
                fresh = True
                continue
            outcomes = await self._written([part for part in parts if part.messages])
            self._group = self._settle(parts, outcomes)
            if self._group:
                await self._refresh(self._group)
                fresh = True
                await self._give_way(attempt)
        raise UnavailableError(
            "Other writers were faster at every try; try again.", attempts=ATTEMPTS_MAX
        )

    def _answer_repeated(self) -> None:
        """Those of the group that we know to have been applied before."""
        now = self._clock.now()
        left = []
        for job in self._group:
            identity = _identity(job)
            revision, applied = (
                self._applied.get(identity, _NEVER) if identity is not None else _NEVER
            )
            if applied.forgotten(now):
                left.append(job)
            else:
                job.settle(revision)
        self._group = left

    async def _refresh(self, jobs: Sequence[Job[Any]]) -> None:
        """Bring up to date what the jobs are planned with: the mirror, and whether they were applied before."""
        await until_available(self._bucket.sync)
        for job in tuple(jobs):  # they may be the group itself, which is left by who fails
            if isinstance(job, CommitJob) and job.batch.id is not None:
                try:
                    await self._look_up(job, job.batch.id)
                except UnreadableError as error:
                    job.fail(error)
                    self._group.remove(job)

    async def _look_up(self, job: CommitJob, batch_id: str) -> None:
        subject = self._bucket.names.id(job.space, batch_id)
        found = await until_available(lambda: self._bucket.last_message(subject))
        job.id_sequence = 0 if found is None else found["seq"]
        if found is not None:
            applied = Applied.read(subject, found.get("data", ""))
            if not applied.forgotten(self._clock.now()):
                self._remember((job.space, batch_id), found["seq"] + applied.behind, applied.at)

    async def _planned(self) -> list[_Part]:
        fetched: dict[int, bytes] = {}
        if len(self._recent) > RECENT_MAX:
            await self._bucket.wait_for(self._bucket.acknowledged)
        while True:
            if self._bucket.mirror.position >= self._bucket.acknowledged:
                self._recent.clear()
            view = View(self._bucket.mirror, self._recent, fetched, self._bucket.names, self._clock)
            try:
                return [_planned(job, view) for job in self._group]
            except ValueNotCached as cold:
                value = await self._bucket.value(cold.entry)
                if value is None:
                    await until_available(self._bucket.sync)
                else:
                    fetched[cold.entry.sequence] = value

    async def _written(self, parts: list[_Part]) -> list[Outcome]:
        """Send what the parts hold; how each came out."""
        if len(parts) == 1:
            return [await self._send(parts[0].messages)]
        if len(parts) <= PLAIN_MAX and all(part.is_plain for part in parts):
            return await asyncio.gather(*(self._send(part.messages) for part in parts))
        messages = [message for part in parts for message in part.messages]
        outcome = await self._send(messages)
        if isinstance(outcome, KeyhouseError) and not is_outage(outcome):
            return [None] * len(
                parts
            )  # the fault of one of them: planned again in smaller groups, it shows whose
        if not isinstance(outcome, int):
            return [outcome] * len(parts)
        sequence = outcome - len(messages)
        outcomes: list[Outcome] = []
        for part in parts:
            sequence += len(part.messages)
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

    def _settle(self, parts: list[_Part], outcomes: list[Outcome]) -> list[Job[Any]]:
        """Tell the callers; what must be planned again. Who is refused was perhaps because of what the group was to write:
        then he is told when that is written."""
        written = all(isinstance(outcome, int) for outcome in outcomes)
        left = iter(outcomes)
        again: list[Job[Any]] = []
        for part in parts:
            outcome = next(left) if part.messages else None
            if isinstance(outcome, KeyhouseError):
                part.job.fail(outcome)
            elif outcome is not None:
                self._succeed(part, outcome)
            elif part.messages or not written:
                again.append(part.job)
            else:
                self._refuse(part)
        return again

    def _succeed(self, part: _Part, sequence: int) -> None:
        for number, message in enumerate(part.messages, sequence - len(part.messages) + 1):
            if (row_key := message.row_key) is not None:
                self._recent[row_key] = (
                    entry(number, message.headers),
                    message.value[:COUNTER_BYTES],
                )
        if (identity := _identity(part.job)) is not None:
            self._remember(identity, sequence, self._clock.now())
        part.job.settle(sequence)

    def _refuse(self, part: _Part) -> None:
        if isinstance(part.refusal, CounterError):
            part.job.fail(part.refusal)
        elif part.refusal is not None:
            part.job.settle(None)
        else:
            part.job.settle(self._bucket.mirror.position)

    def _remember(self, identity: tuple[str, str], revision: int, at: int) -> None:
        self._applied.pop(identity, None)
        self._applied[identity] = (revision, Applied(at, 0))
        if len(self._applied) > IDS_KEPT:
            del self._applied[next(iter(self._applied))]

    async def _give_way(self, attempt: int) -> None:
        """The group was refused: try with half of it; and when it is a single job, look closer, and wait a little."""
        if len(self._group) > 1:
            half = len(self._group) // 2
            self._queue.extendleft(reversed(self._group[half:]))
            del self._group[half:]
        elif self._group and attempt > 1:
            await self._bucket.reconcile(self._group[0].row_keys())
            await asyncio.sleep(random.uniform(0, 0.002 * min(attempt, 20)))


def _planned(job: Job[Any], view: View) -> _Part:
    try:
        return _Part(job, job.plan(view))
    except REFUSALS as refusal:
        return _Part(job, [], refusal)


def _identity(job: Job[Any]) -> tuple[str, str] | None:
    return (
        (job.space, job.batch.id)
        if isinstance(job, CommitJob) and job.batch.id is not None
        else None
    )


def _as_batch(messages: list[Message]) -> list[Message]:
    """Several as one atomic batch; one is sent as it is."""
    if len(messages) > 1:
        batch_id = secrets.token_hex(12)
        for number, message in enumerate(messages, 1):
            message.headers[BATCH_ID] = batch_id
            message.headers[BATCH_SEQUENCE] = str(number)
        messages[-1].headers[BATCH_COMMIT] = "1"
    return messages
