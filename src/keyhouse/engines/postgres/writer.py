"""Commits to PostgreSQL, many in one call: see `keyhouse.engines.task_commit_queue`.

A space is a lane. Each worker has one call in flight, on one connection. A call that meets a space
locked by another process leaves that space out; the space then moves to the blocked pool, whose
workers wait for the lock, so that it delays only other such spaces.

Measured with 64 commits in flight: one call for each batch, on any number of connections, made a
third as many commits. Most of the cost of a commit is the round trip and the transaction, on either
side.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engine import Batch
from keyhouse.engines.commit_queue import SHARED_FAILURES
from keyhouse.engines.postgres.error_map import (
    CONNECTION_LOST,
    NOT_SENT,
    RETRYABLE,
    translate_commit_error,
)
from keyhouse.engines.postgres.group import PostgresCommit, PostgresGroup
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements
from keyhouse.engines.task_commit_queue import LaneGroup, LanePool, TaskCommitQueue
from keyhouse.errors import ClosedError, KeyhouseError, NewerError, UnreadableError

WORKERS: Final = 2
"""Calls in flight at once."""

BLOCKED_WORKERS: Final = 4
"""Calls in flight at once that wait for a lock of another process."""

ATTEMPTS: Final = 6
"""Attempts of a call that the server rolls back in favour of another transaction."""

BACKOFF_SECONDS: Final = 0.01
"""The longest wait after the first attempt; then twice as long each time."""


class PostgresWriter(TaskCommitQueue[PostgresCommit]):
    """`committed` is called with the spaces that a call has changed."""

    SHARED_FAILURES = (*SHARED_FAILURES, NewerError, UnreadableError)

    def __init__(
        self, pool: Pool, sql: Statements, clock: Clock, committed: Callable[[Iterable[str]], None]
    ) -> None:
        self._unlocked = LanePool(WORKERS)
        self._blocked = LanePool(BLOCKED_WORKERS, lanes_max=1)
        super().__init__(self._unlocked, self._blocked)
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._committed = committed

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self.submit(PostgresCommit(space, batch), space)

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("The engine is closed.")

    def _translated(self, error: Exception) -> KeyhouseError:
        if isinstance(error, KeyhouseError):
            return error
        return translate_commit_error(error, self._pool.server_name)

    def _new_group(self, pool: LanePool) -> PostgresGroup:
        return PostgresGroup(pool)

    async def _apply(self, group: LaneGroup[PostgresCommit]) -> None:
        assert isinstance(group, PostgresGroup)
        if group.pool is self._blocked:
            async with self._pool.shared.lock_waits:
                record = await self.call(group, wait_for_locks=True)
        else:
            record = await self.call(group, wait_for_locks=False)
        locked = group.stage(record)
        for lane in group.lanes:
            lane.pool = self._blocked if lane.name in locked else self._unlocked
        if locked:
            self._put_back(group, [write for write in group.writes if write.space in locked])

    def _announce(self, group: LaneGroup[PostgresCommit]) -> None:
        self._committed({write.space for write in group.writes})

    async def call(self, group: PostgresGroup, *, wait_for_locks: bool) -> Any:
        """Return the function's result. Retries only a call that certainly changed nothing."""
        attempt = 1
        while True:
            connection = await self._pool.acquire()
            try:
                record = await connection.fetchrow(
                    self._sql.commit,
                    *group.arguments(self._clock.now(), wait_for_locks=wait_for_locks),
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
            await asyncio.sleep(BACKOFF_SECONDS * 2**attempt * random.random())
            attempt += 1
