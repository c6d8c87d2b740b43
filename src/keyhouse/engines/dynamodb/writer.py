"""Commits to DynamoDB: see `keyhouse.engines.task_commit_queue`. A space is a lane.

Why a space is linearizable and its log has no gaps. A space has a head, the revision of its newest
commit. Every transaction that writes in the space moves the head, on the condition that it still is
where the transaction's revisions were counted from; the same transaction writes the rows, their
entry in the log, and the batch ids. So of two transactions that start from one head DynamoDB
applies one: revisions are assigned once, in the order in which transactions take effect, and each
has its entry in the log as soon as it is the head. No number is drawn beforehand that could leave a
gap.

Checks are conditions of the same transaction, evaluated by DynamoDB with the writes. Counters are
read first; the sum is written on the condition that the row is still at the revision that was read.
If any condition fails, everything is read again (rows, head and ids) and decided here, where it
shows whose check it was; a batch whose check fails on the rows read settles with None and does not
affect the others. Where all rows must be of one moment, and for a batch with more checks than a
transaction has room for, one transaction reads rows and head; the condition on the head keeps that
valid.

A retry takes the group again from the queue, with the writes that arrived meanwhile.

The head of a space is the unit of contention, as the space is the unit of commit. This process
caches the head that it has moved, so that a commit of puts, deletes and checks is one request; when
another process writes in the same space, a transaction occasionally fails and reads again.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Row
from keyhouse.engines.commit_queue import unexpected_error
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import GET_ITEMS_MAX, Client, backoff
from keyhouse.engines.dynamodb.items import Items
from keyhouse.engines.dynamodb.pending import (
    DynamodbCommit,
    DynamodbWrite,
    ExclusiveRead,
    TransactedWrite,
)
from keyhouse.engines.dynamodb.plan import Plan, State
from keyhouse.engines.task_commit_queue import Lane, LaneGroup, LanePool, TaskCommitQueue
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

GROUP_WRITES_MAX: Final = 64
"""Writes that are considered for one transaction."""

HEADS_CACHED: Final = 10_000
"""Spaces whose head is cached."""

ATTEMPTS_MAX: Final = 100
"""Attempts of one group against other processes that write in the same space."""

BACKOFF_SECONDS_MAX: Final = 0.2


class DynamodbGroup(LaneGroup[DynamodbWrite]):
    WRITES_MAX = GROUP_WRITES_MAX

    __slots__ = ()


class DynamodbWriter(TaskCommitQueue[DynamodbWrite]):
    """`committed` is called with the space after each transaction."""

    def __init__(
        self,
        client: Client,
        items: Items,
        table: str,
        clock: Clock,
        committed: Callable[[str], None],
    ) -> None:
        super().__init__(LanePool(lanes_max=1))
        self._client = client
        self._items = items
        self._table = table
        self._log = log.table_of(table)
        self._clock = clock
        self._committed = committed
        self._heads: OrderedDict[str, int] = OrderedDict()

    def head(self, space: str) -> int | None:
        """Return the head as this process last moved it; all of it is applied."""
        return self._heads.get(space)

    def forget_head(self, space: str) -> None:
        """Read the head again before the next commit."""
        self._heads.pop(space, None)

    async def commit(self, space: str, batch: Batch) -> int | None:
        if not (batch.puts or batch.deletes or batch.adds):
            return await self._check(space, batch)
        return await self.submit(DynamodbCommit(space, batch), space)

    async def read_exclusively(self, space: str, work: Callable[[], Awaitable[object]]) -> Any:
        """Run the work while no commit of this process is in flight in the space."""
        return await self.submit(ExclusiveRead(work), space)

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("The engine is closed.", table=self._table)

    def _new_group(self, pool: LanePool) -> DynamodbGroup:
        return DynamodbGroup(pool)

    def _translated(self, error: Exception) -> KeyhouseError:
        """The client translates all errors of requests; any other one is of planning."""
        return unexpected_error(error)

    async def _apply(self, group: LaneGroup[DynamodbWrite]) -> None:
        (lane,) = group.lanes
        try:
            if isinstance(read := group.writes[0], ExclusiveRead):
                read.result = await read.work()
            else:
                await self._transact(lane, group)
        except Exception:
            self._heads.pop(lane.name, None)
            raise

    async def _transact(self, lane: Lane[DynamodbWrite], group: LaneGroup[DynamodbWrite]) -> None:
        """Apply as many writes of the group as fit into one transaction; put back the others."""
        space = lane.name
        for attempt in range(ATTEMPTS_MAX):
            retry = attempt > 0
            if retry:
                self._retake(lane, group)
            writes = [write for write in group.writes if not isinstance(write, ExclusiveRead)]
            if not writes:
                return
            state = await self._state(space, writes, retry)
            plan = Plan(state, self._clock.now())
            taken = _taken(plan, [write for write in writes if not write.future.done()])
            if len(taken) < len(group.writes):
                chosen = set(taken)
                self._put_back(group, [write for write in group.writes if write not in chosen])
            if not state.consistent and _mark_doubtful(taken):
                continue
            if not plan.writes or await self._write(space, plan):
                return
            self._heads.pop(space, None)
            if retry:
                await backoff(attempt, BACKOFF_SECONDS_MAX)
        raise UnavailableError(
            "Other processes kept changing the space; try again.", table=self._table, space=space
        )

    def _retake(self, lane: Lane[DynamodbWrite], group: LaneGroup[DynamodbWrite]) -> None:
        self._put_back(group, group.writes)
        group.clear()
        group.fill(lane.queue)
        if group.writes and isinstance(group.writes[0], ExclusiveRead):
            self._put_back(group, group.writes)

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
        if len(self._heads) > HEADS_CACHED:
            self._heads.popitem(last=False)
        self._committed(space)
        return True

    async def _state(self, space: str, writes: list[TransactedWrite], retry: bool) -> State:
        """Read what the writes need to be planned; after a failed condition, everything."""
        if writes[0].alone:
            return await self._consistent_state(space, writes[0])
        head = None if retry else self._heads.get(space)
        reads = sorted({key for write in writes for key in write.reads(retry)})
        ids = (
            sorted(
                {
                    write.batch.id
                    for write in writes
                    if isinstance(write, DynamodbCommit) and write.batch.id
                }
            )
            if retry
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
        items = await self._client.get_many(wanted)
        return self._state_of(space, items, reads, ids, head)

    def _state_of(
        self,
        space: str,
        items: list[tuple[str, Any]],
        reads: list[str],
        ids: list[str],
        head: int | None,
    ) -> State:
        rows: dict[str, Row | None] = dict.fromkeys(reads)
        own = {}
        for table, item in items:
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

    async def _consistent_state(self, space: str, write: TransactedWrite) -> State:
        """Read the head, the batch id and every row of the write as of one moment."""
        batch_id = write.batch.id if isinstance(write, DynamodbCommit) else None
        own = [(self._log, log.head_key(space))]
        if batch_id is not None:
            own.append((self._log, log.applied_key(space, batch_id)))
        keys = sorted(write.reads(True))
        room = GET_ITEMS_MAX - len(own)
        for attempt in range(ATTEMPTS_MAX):
            rows: dict[str, Row | None] = {}
            heads = set()
            applied: dict[str, int | None] = {}
            for start in range(0, len(keys), room) or (0,):
                chunk = keys[start : start + room]
                items_read = await self._client.transact_get(
                    own + [(self._table, self._items.key(space, key)) for key in chunk]
                )
                heads.add(log.head_of(items_read[0]).revision)
                if batch_id is not None:
                    applied[batch_id] = log.applied_of(items_read[1], self._clock.now())
                items = zip(chunk, items_read[len(own) :], strict=True)
                rows |= {
                    key: None if item is None else self._items.row(item) for key, item in items
                }
            if len(heads) == 1:
                return State(heads.pop(), rows, applied, True)
            await backoff(attempt, BACKOFF_SECONDS_MAX)
        raise UnavailableError(
            "Other processes kept changing the space; try again.", table=self._table, space=space
        )

    async def _check(self, space: str, batch: Batch) -> int | None:
        """Evaluate a batch that writes nothing: its checks must all hold at one moment."""
        if self._closed:
            raise self._closed_error()
        write = DynamodbCommit(space, batch)
        Plan(await self._consistent_state(space, write), self._clock.now()).take(write)
        return write.result


def _taken(plan: Plan, writes: list[TransactedWrite]) -> list[TransactedWrite]:
    taken: list[TransactedWrite] = []
    for write in writes:
        if not plan.take(write):
            break
        taken.append(write)
    return taken


def _mark_doubtful(writes: list[TransactedWrite]) -> bool:
    """Return True if a staged outcome needs a consistent read; that write then goes alone."""
    doubtful = [
        write for write in writes if isinstance(write, DynamodbCommit) and write.is_doubtful
    ]
    for write in doubtful:
        write.alone = True
    return bool(doubtful)
