"""Reads, many in one call: those that come in while one is under way become the next, of whatever spaces."""

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
"""Keys in one call; a larger read goes alone."""

LANES: Final = 2
"""Calls under way at once."""


class _Wanted:
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
        self._waiting: deque[_Wanted] = deque()
        self._lanes = WorkerPool(LANES)
        self._starting = False

    async def rows(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        self._pool.check_open()
        if not keys:
            return []
        wanted = _Wanted(space, keys)
        self._waiting.append(wanted)
        if not self._starting and not self._lanes.full:
            self._starting = True
            self._lanes.start(self._lane)
        return await wanted.future

    async def _lane(self) -> None:
        """Each of its turns comes when the callers that were ready have all had their say."""
        while True:
            self._starting = False
            group = self._take()
            if not group:
                return
            await self._read(group)
            self._starting = True
            await asyncio.sleep(0)

    def _take(self) -> list[_Wanted]:
        group: list[_Wanted] = []
        count = 0
        while self._waiting:
            wanted = self._waiting[0]
            count += len(wanted.keys)
            if group and count > KEYS_MAX:
                break
            self._waiting.popleft()
            if not wanted.future.cancelled():
                group.append(wanted)
        return group

    async def _read(self, group: list[_Wanted]) -> None:
        spaces = [wanted.space for wanted in group for _ in wanted.keys]
        keys = [key for wanted in group for key in wanted.keys]

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
            else:  # perhaps the fault of one of them, and each hears of its own
                for wanted in group:
                    await self._read([wanted])
            return
        start = 0
        for wanted in group:
            stop = start + len(wanted.keys)
            if not wanted.future.done():
                wanted.future.set_result(rows[start:stop])
            start = stop
