"""Group commit with worker tasks, for engines on a server: PostgreSQL, JetStream and DynamoDB.

See `commit_queue` for the theory. Writes wait in lanes; a worker takes a group from lanes that are
ready, sends it, and takes the next. A lane is always in one of these states:

    state       meaning                               next
    ---------   -----------------------------------   --------------------------------------------
    idle        no writes; the lane is forgotten      submit                   -> ready
    ready       writes wait for a worker              a worker takes some      -> in flight
                                                      all were withdrawn       -> idle
    in flight   one group holds writes of the lane    done, no more writes     -> idle
                                                      done, writes wait        -> ready

Engines differ in how lanes share groups and workers, which is set by each `LanePool`:

    engine       lane          lanes in a group   workers
    ----------   -----------   ----------------   -------------------------------------------------
    PostgreSQL   a space       many               2; and 4 with one lane each, for spaces that
                                                  another process has locked
    JetStream    the bucket    1                  1 for each bucket
    DynamoDB     a space       1                  one for each space that is written

Lanes take turns within a group, one write each, so that a lane with a long queue does not delay the
others. A worker starts, and takes its next group, one loop turn after a write or an outcome, so
that all callers that are ready at that time come into the same group.
"""

import asyncio
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Generic

from keyhouse.engines.commit_queue import (
    SHARED_FAILURES,
    Answer,
    CommitGroup,
    CommitQueue,
    PendingWrite,
    Write,
    unexpected_outcome,
)
from keyhouse.engines.worker_pool import WorkerPool
from keyhouse.errors import KeyhouseError


class Lane(Generic[Write]):
    """Writes that are applied in order. `pool`: the workers that take them."""

    __slots__ = ("in_flight", "name", "pool", "queue")

    def __init__(self, name: str, pool: "LanePool") -> None:
        self.name = name
        self.pool = pool
        self.queue: deque[Write] = deque()
        self.in_flight = False


class LanePool(WorkerPool):
    """Workers, and the lanes that are ready for them, in the order of their turns.

    `lanes_max`: lanes that share a group. `starting`: workers that will take a group within one
    loop turn, and need not be started again.
    """

    __slots__ = ("lanes_max", "ready", "starting")

    def __init__(self, workers_max: int = sys.maxsize, lanes_max: int = sys.maxsize) -> None:
        super().__init__(workers_max)
        self.lanes_max = lanes_max
        self.ready: dict[Lane[Any], None] = {}
        self.starting = 0

    @property
    def needs_worker(self) -> bool:
        """True if the ready lanes make more groups than there are workers about to take one."""
        return self.starting * self.lanes_max < len(self.ready) and not self.full


class LaneGroup(CommitGroup[Write]):
    """A group, with the lanes it was taken from and the pool that took it."""

    __slots__ = ("lanes", "pool")

    def __init__(self, pool: LanePool) -> None:
        super().__init__()
        self.pool = pool
        self.lanes: dict[Lane[Write], None] = {}


class TaskCommitQueue(CommitQueue, Generic[Write]):
    """The engine sends a group and stages the outcome of each write."""

    SHARED_FAILURES: ClassVar[tuple[type[KeyhouseError], ...]] = SHARED_FAILURES

    def __init__(self, *pools: LanePool) -> None:
        """A lane starts in the first pool; the engine may move it to another."""
        self._pools = pools
        self._lanes: dict[str, Lane[Write]] = {}

    # Implemented by the engine

    @abstractmethod
    def _new_group(self, pool: LanePool) -> LaneGroup[Write]: ...

    @abstractmethod
    async def _apply(self, group: LaneGroup[Write]) -> None:
        """Make the group durable and stage the outcome of each write.

        Writes that were not applied go back with `_put_back`. An error is the group's failure.
        """
        ...

    def _translated(self, error: Exception) -> KeyhouseError:
        """Return the group's failure for an error that `_apply` raised."""
        return unexpected_outcome(error)

    def _announce(self, group: LaneGroup[Write]) -> None:  # optional
        """Notify the watches, after the callers are settled."""

    # Shared by all engines

    @property
    def busy(self) -> bool:
        """True while a worker runs."""
        return any(pool.tasks for pool in self._pools)

    def submit(self, write: PendingWrite[Answer], lane: str = "") -> asyncio.Future[Answer]:
        """Queue the write; the future has its outcome once the write is durable."""
        if self._closed:
            raise self._closed_error()
        open_lane = self._lanes.get(lane)
        if open_lane is None:
            open_lane = self._lanes[lane] = Lane(lane, self._pools[0])
        write.future = asyncio.get_running_loop().create_future()
        write.lane = open_lane
        open_lane.queue.append(write)  # type: ignore[arg-type]  # an engine submits its own writes
        if not open_lane.in_flight:
            open_lane.pool.ready[open_lane] = None
            self._start_workers(open_lane.pool)
        return write.future

    async def stop(self) -> None:
        self._closed = True
        while tasks := [task for pool in self._pools for task in pool.tasks]:
            await asyncio.wait(tasks)

    def _put_back(self, group: LaneGroup[Write], writes: Sequence[Write]) -> None:
        """Return writes that were not applied to the front of their lanes, in order."""
        for write in reversed(writes):
            write.lane.queue.appendleft(write)
        group.remove(writes)

    def _is_shared(self, failure: KeyhouseError) -> bool:
        """True if no single write can have caused the failure."""
        return isinstance(failure, self.SHARED_FAILURES)

    def _start_workers(self, pool: LanePool) -> None:
        while pool.needs_worker:
            pool.starting += 1
            pool.start(partial(self._work, pool))

    async def _work(self, pool: LanePool) -> None:
        while True:
            pool.starting -= 1
            group = self._take(pool)
            if not group.writes:
                return
            self._start_workers(pool)
            await self._run(group)
            pool.starting += 1
            await asyncio.sleep(0)

    def _take(self, pool: LanePool) -> LaneGroup[Write]:
        """Return the next group; empty only if no lane is ready."""
        group = self._new_group(pool)
        while pool.ready and not group.writes:  # all writes of a lane may have been withdrawn
            self._fill(group, pool)
        for lane in group.lanes:
            lane.in_flight = True
            del pool.ready[lane]
        return group

    def _fill(self, group: LaneGroup[Write], pool: LanePool) -> None:
        turns = deque(islice(pool.ready, pool.lanes_max))
        while turns and len(group.writes) < group.WRITES_MAX:
            lane = turns.popleft()
            count = len(group.writes)
            fits = group.fill(lane.queue, 1 if turns else sys.maxsize)
            if len(group.writes) > count:
                group.lanes[lane] = None
            elif not lane.queue and lane not in group.lanes:
                del pool.ready[lane], self._lanes[lane.name]
            if fits and lane.queue:
                turns.append(lane)

    async def _run(self, group: LaneGroup[Write]) -> None:
        """Apply the group, and settle each of its writes or put it back. Never raises."""
        try:
            await self._apply(group)
            group.settle()
        except Exception as error:
            self._fail(group, self._translated(error))
        except BaseException:  # the loop shuts down, and the callers with it
            for lane in group.lanes:
                lane.in_flight = False
            raise
        else:
            self._announce(group)
        for lane in group.lanes:
            lane.in_flight = False
            if lane.queue:
                lane.pool.ready[lane] = None
            else:
                del self._lanes[lane.name]
        for pool in self._pools:
            if pool is not group.pool:
                self._start_workers(pool)

    def _fail(self, group: LaneGroup[Write], failure: KeyhouseError) -> None:
        """Settle the group, unless one write may be to blame: then run each alone to find it."""
        if len(group.writes) == 1 or self._is_shared(failure):
            group.settle(failure)
            return
        for write in group.writes:
            write.alone = True
        self._put_back(group, group.writes)
