"""Group commit: whatever comes in while one call is under way becomes the next call.

Each lane has one call under way, on one connection. Spaces take turns, so that one with a long queue does not hold up the
others, and a space is in one lane at a time. A space that another process has locked goes to a lane of its own kind, which
has the patience to wait for it, and holds up nobody there but other such spaces.

Measured with 64 in flight, one call for each batch on as many connections as it liked made a third as many commits: most
of a commit's cost is the round trip and the transaction, on either side.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engine import Batch
from keyhouse.engines.postgres.error_map import (
    CONNECTION_LOST,
    NOT_SENT,
    RETRYABLE,
    is_outage,
    translate_commit_error,
)
from keyhouse.engines.postgres.group import Group, Job
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements
from keyhouse.engines.postgres.worker_pool import WorkerPool
from keyhouse.errors import ClosedError, KeyhouseError

LANES: Final = 2
"""Calls under way at once."""

PATIENT_LANES: Final = 4
"""Calls that wait for a lock of another process, at once."""

CONNECTIONS: Final = LANES + PATIENT_LANES

ATTEMPTS: Final = 6
"""Tries of a call that the server undoes for another transaction's sake."""

PAUSE_SECONDS: Final = 0.01
"""Between two of them, at first; then twice as long."""


class Writer:
    """The queue in front of the commits. `committed` is told which spaces a call has changed."""

    def __init__(
        self, pool: Pool, sql: Statements, clock: Clock, committed: Callable[[Iterable[str]], None]
    ) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._committed = committed
        self._waiting: dict[str, deque[Job]] = {}  # by space, in the order of their turns
        self._contended: set[str] = set()
        self._under_way: set[str] = set()
        self._lanes = WorkerPool(LANES)
        self._patient_lanes = WorkerPool(PATIENT_LANES)
        self._starting = False
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._lanes.tasks or self._patient_lanes.tasks)

    async def commit(self, space: str, batch: Batch) -> int | None:
        """The answer, when it is on disk. A caller that is cancelled before its batch is sent takes it back."""
        if self._closed:
            raise ClosedError("The engine is closed.")
        job = Job(space, batch)
        if space in self._waiting:
            self._waiting[space].append(job)
        else:
            self._waiting[space] = deque((job,))
        self._wake()
        return await job.future

    async def stop(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        while tasks := self._lanes.tasks | self._patient_lanes.tasks:
            await asyncio.wait(tasks)

    def _wake(self) -> None:
        if not self._starting and not self._lanes.full:
            self._starting = True
            self._lanes.start(self._lane())

    async def _lane(self) -> None:
        """Each of its turns comes when the callers that were ready, or were just told, have all had their say."""
        while True:
            self._starting = False
            group = self._take(self._free())
            if not group.jobs:
                return
            await self._send(group, patient=False)
            self._starting = True
            await asyncio.sleep(0)

    async def _patient_lane(self) -> None:
        while spaces := [
            space for space in self._waiting if space in self._contended - self._under_way
        ]:
            group = self._take(spaces[:1])
            if group.jobs:
                await self._send(group, patient=True)
            self._contended.discard(spaces[0])
            self._wake()

    def _free(self) -> list[str]:
        return [
            space
            for space in self._waiting
            if space not in self._under_way and space not in self._contended
        ]

    def _take(self, spaces: list[str]) -> Group:
        group, turns = Group(), deque(spaces)
        while turns and not group.full:
            space = turns.popleft()
            queue = self._waiting.pop(space)
            taken = _take_turn(queue, group, alone=not turns)
            if queue:
                self._waiting[space] = queue  # at the end: others have their turn first
            if taken and queue:
                turns.append(space)
        return group

    async def _send(self, group: Group, *, patient: bool) -> None:
        """Tell every job of the group what became of it, or put it back. Never raises."""
        self._under_way.update(group.spaces)
        try:
            record = await self._call(group, patient)
        except KeyhouseError as error:
            group.fail(error)
        except Exception as error:
            failure = translate_commit_error(error, self._pool.server_name)
            if len(group.jobs) == 1 or is_outage(failure):
                group.fail(failure)
            else:  # the fault of one of them; which one, only its own call can tell
                await self._send_each(group)
        else:
            remaining = group.settle(record)
            self._committed([space for space in group.spaces if space not in remaining])
            self._put_back(remaining)
        finally:
            self._under_way.difference_update(group.spaces)

    async def _send_each(self, group: Group) -> None:
        for job in group.jobs:
            alone = Group()
            alone.add(job)
            await self._send(alone, patient=True)

    def _put_back(self, remaining: dict[str, list[Job]]) -> None:
        for space, jobs in remaining.items():
            self._waiting.setdefault(space, deque()).extendleft(reversed(jobs))
            self._contended.add(space)
            if not self._patient_lanes.full:
                self._patient_lanes.start(self._patient_lane())

    async def _call(self, group: Group, patient: bool) -> Any:
        """The function's answer. Repeats only what is known not to have been done."""
        attempt = 1
        while True:
            connection = await self._pool.acquire()
            try:
                record = await connection.fetchrow(
                    self._sql.commit, *group.arguments(self._clock.now(), patient=patient)
                )
            except (*RETRYABLE, *NOT_SENT) as error:
                (self._pool.discard if isinstance(error, NOT_SENT) else self._pool.release)(
                    connection
                )
                if attempt == ATTEMPTS:
                    raise
            except BaseException as error:
                if isinstance(error, Exception) and not isinstance(error, CONNECTION_LOST):
                    self._pool.release(connection)
                else:
                    self._pool.discard(connection)
                raise
            else:
                self._pool.release(connection)
                return record
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt * random.random())
            attempt += 1


def _take_turn(queue: deque[Job], group: Group, *, alone: bool) -> bool:
    """One job of a space into the group, or all that are there if no other space waits; whether there was room."""
    while queue and not group.full:
        job = queue[0]
        if not job.future.cancelled():
            if not group.add(job):
                return False
            if not alone:
                queue.popleft()
                return True
        queue.popleft()
    return True
