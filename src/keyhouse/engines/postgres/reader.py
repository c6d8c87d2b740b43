"""Batches reads: those that arrive while a call is in flight share the next one, across spaces."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Row
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements
from keyhouse.engines.worker_pool import WorkerPool
from keyhouse.errors import KeyhouseError

KEYS_MAX: Final = 256
"""Keys per call; a larger read is sent alone."""

READS_AT_ONCE: Final = 2
"""Concurrent calls."""


class _PendingRead:
    __slots__ = ("future", "keys", "space")

    def __init__(self, space: str, keys: Sequence[str]) -> None:
        self.space = space
        self.keys = keys
        self.future: asyncio.Future[list[Row | None]] = asyncio.get_running_loop().create_future()

    def fail(self, error: KeyhouseError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Reader:
    def __init__(self, pool: Pool, sql: Statements, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._queue: deque[_PendingRead] = deque()
        self._workers = WorkerPool(READS_AT_ONCE)
        self._starting = False

    async def rows(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        self._pool.check_open()
        if not keys:
            return []
        pending = _PendingRead(space, keys)
        self._queue.append(pending)
        if not self._starting and not self._workers.full:
            self._starting = True
            self._workers.start(self._work)
        return await pending.future

    async def _work(self) -> None:
        """Serve pending reads. Yields to the loop between calls, so that ready callers join the
        next."""
        while True:
            self._starting = False
            group = self._take()
            if not group:
                return
            await self._read(group)
            self._starting = True
            await asyncio.sleep(0)

    def _take(self) -> list[_PendingRead]:
        group: list[_PendingRead] = []
        count = 0
        while self._queue:
            pending = self._queue[0]
            count += len(pending.keys)
            if group and count > KEYS_MAX:
                break
            self._queue.popleft()
            if not pending.future.cancelled():
                group.append(pending)
        return group

    async def _read(self, group: list[_PendingRead]) -> None:
        spaces = [pending.space for pending in group for _ in pending.keys]
        keys = [key for pending in group for key in pending.keys]

        async def read(connection: Connection) -> list[Row | None]:
            rows: list[Row | None] = [None] * len(keys)
            for at, value, revision, expires in await connection.fetch(
                self._sql.read, spaces, keys, self._clock.now()
            ):
                rows[at - 1] = Row(keys[at - 1], value.encode(), revision, expires)
            return rows

        try:
            rows = await self._pool.run_with_retry(read)
        except KeyhouseError as error:
            if len(group) == 1:
                group[0].fail(error)
            else:  # one of them may be at fault: read each alone, so that only it fails
                for pending in group:
                    await self._read([pending])
            return
        start = 0
        for pending in group:
            stop = start + len(pending.keys)
            if not pending.future.done():
                pending.future.set_result(rows[start:stop])
            start = stop
