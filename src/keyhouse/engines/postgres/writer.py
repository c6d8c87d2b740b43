"""Group commit: whatever comes in while one call is under way becomes the next call.

Each lane has one call under way, on one connection. Spaces are served in turns, so that one with a long queue does not
hold up the others, and a space is in one lane at a time: what waits for its lock on the server, which another process may
have, waits in one lane only.

Measured with 64 in flight, one call for each batch on as many connections as it liked made a third as many commits: most
of a commit's cost is the round trip and the transaction, on either side.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Batch
from keyhouse.engines.postgres.faults import LOST, REPEATED, translated_commit
from keyhouse.engines.postgres.group import Group, Job, faults_of
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements
from keyhouse.errors import ClosedError, EngineError, KeyhouseError

LANES: Final = 3
"""Calls under way at once."""

ATTEMPTS: Final = 6
"""Tries of a call that the server undoes for another transaction's sake."""

PAUSE_SECONDS: Final = 0.01
"""Between two of them, at first; then twice as long."""


class Writer:
    """The queue in front of the commits. `committed` is told which spaces a call has changed."""

    def __init__(self, pool: Pool, sql: Statements, clock: Clock, committed: Callable[[Iterable[str]], None]) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._committed = committed
        self._waiting: dict[str, deque[Job]] = {}  # by space, in the order of their turns
        self._under_way: set[str] = set()
        self._lanes: set[asyncio.Task[None]] = set()
        self._starting = False
        self._closed = False

    async def commit(self, space: str, batch: Batch) -> int | None:
        """The answer, when it is on disk. A caller that is cancelled before its batch is sent takes it back."""
        if self._closed:
            raise ClosedError("The engine is closed.")
        job = Job(space, batch)
        if space in self._waiting:
            self._waiting[space].append(job)
        else:
            self._waiting[space] = deque((job,))
        self._start()
        return await job.future

    async def stop(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        while self._lanes:
            await asyncio.wait(self._lanes)

    def _start(self) -> None:
        """Let a free lane take what waits, once the callers that are ready now have all had their say."""
        if not self._starting and len(self._lanes) < LANES:
            self._starting = True
            lane = asyncio.ensure_future(self._lane())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _lane(self) -> None:
        self._starting = False
        while (group := self._take()).jobs:
            self._under_way.update(group.spaces)
            try:
                await self._send(group)
            finally:
                self._under_way.difference_update(group.spaces)
            await asyncio.sleep(0)  # behind the callers that were just told, so that their next batches come along

    def _take(self) -> Group:
        group = Group()
        turns = deque(space for space in self._waiting if space not in self._under_way)
        while turns and not group.full:
            space = turns.popleft()
            queue = self._waiting.pop(space)
            while queue and queue[0].future.cancelled():
                queue.popleft()
            if queue and group.add(queue[0]):
                queue.popleft()
                turns.append(space)
            if queue:
                self._waiting[space] = queue  # at the end: others have their turn first
            elif turns and turns[-1] == space:
                turns.pop()
        return group

    async def _send(self, group: Group) -> None:
        """Tell every job of the group what became of it. Never raises."""
        try:
            record = await self._call(group)
        except KeyhouseError as error:
            group.fail(error)
        except Exception as error:
            failure = translated_commit(error, self._pool.server)
            if isinstance(failure, EngineError) or len(group.jobs) == 1:
                group.fail(failure)
            else:  # the fault of one of them; which one, only its own call can tell
                await self._send_each(group)
        else:
            answers = record["answers"]
            group.settle(answers, faults_of(record))
            self._committed({job.space for job, answer in zip(group.jobs, answers, strict=True) if answer is not None})

    async def _send_each(self, group: Group) -> None:
        for job in group.jobs:
            alone = Group()
            alone.add(job)
            await self._send(alone)

    async def _call(self, group: Group) -> dict[str, list[int | None]]:
        """The function's answer. Repeats only what is known not to have been done."""
        attempt = 1
        while True:
            connection = await self._pool.take()
            try:
                record: dict[str, list[int | None]] = await connection.fetchrow(
                    self._sql.commit, *group.arguments(self._clock.now())
                )
            except REPEATED:
                self._pool.give(connection)
                if attempt == ATTEMPTS:
                    raise
            except BaseException as error:
                if isinstance(error, Exception) and not isinstance(error, LOST):
                    self._pool.give(connection)
                else:
                    self._pool.drop(connection)
                raise
            else:
                self._pool.give(connection)
                return record
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt * random.random())
            attempt += 1
