"""Commits: one transaction after the other in each space, each for all that came in while the one before was under way.

Why it is linearizable, and its log without gaps. A space has a head, the revision of its newest commit. Every transaction
that writes in the space moves the head on, on the condition that it is still where the transaction's revisions were counted
from; the same transaction writes the rows, their entry in the log, and the batch ids. So of two that start from one head
DynamoDB lets one through: revisions are given out once, in the order in which transactions take effect, and each has
its entry in the log the moment that it is the head. There is nothing to leave a gap: no number is drawn beforehand.

Checks are conditions of the same transaction, judged by DynamoDB with the writes. Counters are read first; the sum is
written on the condition that the row is still at the revision that was read. When any condition fails, everything is
read (rows, head and ids) and decided again, here, where it shows whose check it was; a batch whose check fails on what was
read is answered `None` and leaves the others to go on. Where it matters that all was read at one moment, and for a batch
with more checks than a transaction has room for, rows and head are read by one transaction; the head's condition
keeps that valid.

The head of a space is the unit of contention, as the space is the unit of commit. This process remembers the head that it
has moved, so that a commit of puts, deletes and checks is one request; who shares the space with another process loses to
it now and then, and reads again.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Row
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import GET_ITEMS_MAX, Client, backoff
from keyhouse.engines.dynamodb.error_map import is_outage
from keyhouse.engines.dynamodb.items import Items, is_live
from keyhouse.engines.dynamodb.job import Alone, Answer, Commit, Job, Removal
from keyhouse.engines.dynamodb.plan import OWN_ITEMS, TRANSACTION_ITEMS_MAX, Plan, State
from keyhouse.errors import ClosedError, UnavailableError

GROUP_JOBS_MAX: Final = 64
"""Jobs that are looked at for one transaction."""

HEADS_KEPT: Final = 10_000
"""Spaces whose head is remembered."""

ATTEMPTS_MAX: Final = 100
"""Tries of one group against other processes that write in the same space."""

LOST_PAUSE_SECONDS_MAX: Final = 0.2

Queue = deque[Job[Any]]


class Writer:
    """`committed` is called with the space after each transaction."""

    def __init__(
        self,
        client: Client,
        items: Items,
        table: str,
        clock: Clock,
        committed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._items = items
        self._table = table
        self._log = log.table_of(table)
        self._clock = clock
        self._committed = committed
        self._queues: dict[str, Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heads: OrderedDict[str, int] = OrderedDict()
        self._closed = False

    def head(self, space: str) -> int | None:
        """The head as this process left it, all of it applied."""
        return self._heads.get(space)

    async def commit(self, space: str, batch: Batch) -> int | None:
        if not (batch.puts or batch.deletes or batch.adds):
            return await self._judge(space, batch)
        return await self.submit(space, Commit(batch))

    async def submit(self, space: str, job: Job[Answer]) -> Answer:
        """The job's answer. A caller that is cancelled before its job's transaction is sent takes it back."""
        self._check_open()
        queue = self._queues.get(space)
        if queue is None:
            queue = self._queues[space] = deque()
            task = asyncio.get_running_loop().create_task(self._work(space, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append(job)
        return await job.future

    async def alone(self, space: str, work: Callable[[], Awaitable[object]]) -> Any:
        return await self.submit(space, Alone(work))

    async def close(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.", table=self._table)

    async def _work(self, space: str, queue: Queue) -> None:
        try:
            while queue:
                await self._next(space, queue)
        finally:
            del self._queues[space]
            for job in queue:
                job.future.cancel()

    async def _next(self, space: str, queue: Queue) -> None:
        """Do and answer one job at least, and all that go along with it."""
        begun: list[Job[Any]] = [queue[0]]
        try:
            if isinstance(queue[0], Alone):
                queue[0].answer = await queue[0].work()
            else:
                await self._group(space, queue, begun)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._heads.pop(space, None)
            if len(begun) > 1 and not is_outage(error):
                _part(begun)
            else:
                self._settle(queue, begun, error)
        else:
            self._settle(queue, begun, None)

    def _settle(self, queue: Queue, begun: list[Job[Any]], failure: Exception | None) -> None:
        for job in begun:
            job.settle(failure)
        while queue and queue[0].future.done():
            queue.popleft()

    async def _group(self, space: str, queue: Queue, begun: list[Job[Any]]) -> None:
        """`begun` holds, at any time, the jobs whose fate a failure decides."""
        for attempt in range(ATTEMPTS_MAX):
            jobs = _waiting(queue)
            if not jobs:
                return
            begun[:] = jobs
            careful = attempt > 0
            state = await self._state(space, jobs, careful)
            plan = Plan(state, self._clock.now())
            begun[:] = _taken(plan, [job for job in jobs if not job.future.done()])
            if not state.together and _is_doubtful(begun):
                continue
            if not plan.writes or await self._write(space, plan):
                return
            self._heads.pop(space, None)
            if careful:
                await backoff(attempt, LOST_PAUSE_SECONDS_MAX)
        raise UnavailableError(
            "Others kept changing the space; try again.", table=self._table, space=space
        )

    async def _write(self, space: str, plan: Plan) -> bool:
        token = str(uuid4())

        async def applied() -> bool:
            entry = await self._client.get(self._log, log.entry_key(space, plan.revision))
            return entry is not None and log.entry_of(entry).token == token

        items = plan.items(space, self._items, self._table, token)
        if not await self._client.transact_write(items, token, applied):
            return False
        self._heads[space] = plan.revision
        self._heads.move_to_end(space)
        if len(self._heads) > HEADS_KEPT:
            self._heads.popitem(last=False)
        self._committed(space)
        return True

    async def _state(self, space: str, jobs: list[Commit | Removal], careful: bool) -> State:
        if not _fits(jobs[0]):
            return await self._together(space, jobs[0])
        head = None if careful else self._heads.get(space)
        reads = sorted({key for job in jobs for key in job.reads(careful)})
        ids = (
            sorted({job.batch.id for job in jobs if isinstance(job, Commit) and job.batch.id})
            if careful
            else []
        )
        if head is not None and not reads:
            return State(head, {}, {}, False)
        wanted: list[tuple[str, Any]] = [
            (self._table, self._items.key(space, key)) for key in reads
        ]
        wanted += [(self._log, log.applied_key(space, each)) for each in ids]
        if head is None:
            wanted.append((self._log, log.head_key(space)))
        found = await self._client.get_many(wanted)
        return self._state_of(space, found, reads, ids, head)

    def _state_of(
        self,
        space: str,
        found: list[tuple[str, Any]],
        reads: list[str],
        ids: list[str],
        head: int | None,
    ) -> State:
        rows: dict[str, Row | None] = dict.fromkeys(reads)
        own = {}
        for table, item in found:
            if table == self._table:
                row = self._items.row(item)
                rows[row.key] = row
            else:
                own[item["key"]["S"]] = item
        now = self._clock.now()
        applied = {each: log.applied_of(own.get("b" + each), now) for each in ids}
        return State(
            log.head_of(own.get("head")).revision if head is None else head, rows, applied, False
        )

    async def _together(self, space: str, job: Commit | Removal) -> State:
        """The head, the batch id and every row that the job reads, as they stand together."""
        batch_id = job.batch.id if isinstance(job, Commit) else None
        own = [(self._log, log.head_key(space))]
        if batch_id is not None:
            own.append((self._log, log.applied_key(space, batch_id)))
        keys = sorted(job.reads(True))
        room = GET_ITEMS_MAX - len(own)
        for attempt in range(ATTEMPTS_MAX):
            rows: dict[str, Row | None] = {}
            heads = set()
            applied: dict[str, int | None] = {}
            for start in range(0, len(keys), room) or (0,):
                chunk = keys[start : start + room]
                found = await self._client.transact_get(
                    own + [(self._table, self._items.key(space, key)) for key in chunk]
                )
                heads.add(log.head_of(found[0]).revision)
                if batch_id is not None:
                    applied[batch_id] = log.applied_of(found[1], self._clock.now())
                items = zip(chunk, found[len(own) :], strict=True)
                rows |= {
                    key: None if item is None else self._items.row(item) for key, item in items
                }
            if len(heads) == 1:
                return State(heads.pop(), rows, applied, True)
            await backoff(attempt, LOST_PAUSE_SECONDS_MAX)
        raise UnavailableError(
            "Others kept changing the space; try again.", table=self._table, space=space
        )

    async def _judge(self, space: str, batch: Batch) -> int | None:
        """A batch that writes nothing: whether its checks hold, all at one moment."""
        self._check_open()
        state = await self._together(space, Commit(batch))
        if batch.id is not None and (revision := state.applied[batch.id]) is not None:
            return revision
        now = self._clock.now()
        for check in batch.checks:
            row = state.rows[check.key]
            if (row.revision if row is not None and is_live(row, now) else None) != check.revision:
                return None
        return state.head


def _waiting(queue: Queue) -> list[Commit | Removal]:
    """The jobs for the next transaction: the first alone, if it does not fit with its conditions."""
    jobs: list[Commit | Removal] = []
    for job in queue:
        if (
            len(jobs) == GROUP_JOBS_MAX
            or not isinstance(job, Commit | Removal)
            or (jobs and not _fits(job))
        ):
            break
        if not job.future.done():
            jobs.append(job)
            if not _fits(job):
                break
    return jobs


def _fits(job: Commit | Removal) -> bool:
    """Whether it can go with others. What can't is decided on what stands together, and goes alone."""
    if job.together:
        return False
    return len(job.touched) + 1 + OWN_ITEMS <= TRANSACTION_ITEMS_MAX


def _part(jobs: list[Job[Any]]) -> None:
    """Let each go alone: one of them is to blame, and its own transaction shows which."""
    for job in jobs:
        job.together = True


def _taken(plan: Plan, jobs: list[Commit | Removal]) -> list[Job[Any]]:
    taken: list[Job[Any]] = []
    for job in jobs:
        if not plan.take(job):
            break
        taken.append(job)
    return taken


def _is_doubtful(jobs: list[Job[Any]]) -> bool:
    """Whether one of them must be decided anew; it is marked for that."""
    doubtful = [job for job in jobs if isinstance(job, Commit) and job.is_doubtful]
    for job in doubtful:
        job.together = True
    return bool(doubtful)
