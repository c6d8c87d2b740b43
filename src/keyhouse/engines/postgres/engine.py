"""The engine on a PostgreSQL server: commits through the writer, reads through the reader, watches
through the feed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, Final

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Page, Row, Span
from keyhouse.engines.batch_plan import ids_expired_at
from keyhouse.engines.pace import Pace
from keyhouse.engines.postgres.feed import Feed
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.reader import Reader
from keyhouse.engines.postgres.server import Server
from keyhouse.engines.postgres.snapshot import (
    SPACES_ROWS,
    Snapshot,
    page_of,
    scan_arguments,
    snapshot,
)
from keyhouse.engines.postgres.sql import statements
from keyhouse.engines.postgres.writer import PostgresWriter
from keyhouse.engines.retention import Kept, Retention
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.url import split_layout
from keyhouse.limits import CHANGES_KEPT

SWEEP_ROWS_MAX: Final = 5_000
"""Rows that a sweep deletes per transaction, while no commit of this process is in flight."""

SWEEP_ROWS_BUSY: Final = 100
"""Rows of the first transaction, and while commits are in flight, which wait for the lock."""

SWEEP_BUSY_SECONDS: Final = 0.003
"""Time of a transaction while commits are in flight."""

PACE_KEPT_SECONDS: Final = 0.1
"""A sweep that follows another one so soon, while no commit is in flight, keeps its pace."""

PRUNE_ROWS: Final = 2_000
"""Changes, and batch ids, that a sweep prunes per transaction."""

FORGET_ROWS: Final = 500
"""Rows that `forget` deletes per transaction."""

CAPABILITIES: Final = Capabilities(
    name="postgres", durable=True, shared=True, snapshots=True, binary=False
)


class PostgresEngine:
    """See `keyhouse.engine` for each method's contract."""

    capabilities: Final = CAPABILITIES

    def __init__(self, server: Server, layout: Layout, clock: Clock, changes_kept: Kept) -> None:
        self.clock = clock
        self.sql = statements(layout)
        self._retention = Retention(changes_kept, clock)
        self._closing = False
        self._pace = _new_pace()
        self._pace_until = 0.0
        self.reads = Pool(server, "reads")
        self.writes = Pool(server, "writes")
        self.reader = Reader(self.reads, self.sql, clock)
        self.feed = Feed(self.reads, self.sql, clock)
        self.writer = PostgresWriter(self.writes, self.sql, clock, committed=self.feed.committed)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
        layout: Layout | None = None,
        create: bool = True,
    ) -> "PostgresEngine":
        """Open the engine on a database: `postgresql://user:password@host:port/database`.

        `layout=NAME` in the query names the tables; the default is `keyhouse_rows` and so on.
        `connections=NUMBER` limits the connections of this process to the server, which the engines
        of an event loop with the same URL share. The first call connects, and creates missing
        tables unless `create` is false. The engine reconnects by itself.
        """
        bare, named = split_layout(url)
        chosen = layout or named or Layout.named("keyhouse")
        return cls(
            Server(bare, chosen, create=create), chosen, clock or SystemClock(), changes_kept
        )

    async def connect(self) -> None:
        """Connect to the server and its tables, as the first call would."""
        for pool in (self.writes, self.reads):
            pool.release(await pool.acquire())

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return await self.reader.rows(space, keys)

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        sql = self.sql.scans[reverse, keys_only, span.stop is not None]
        arguments = scan_arguments(space, span, self.clock.now(), limit)
        return page_of(
            await self.reads.run(lambda connection: connection.fetch(sql, *arguments)), limit
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self.writer.commit(space, batch)

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return self.feed.changes(space, span, since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        if self.writer.busy or perf_counter() > self._pace_until:
            self._pace = _new_pace()
        pace, swept = self._pace, 0
        while swept < limit:
            rows, started = min(pace.rows, limit - swept), perf_counter()
            seen, gone, spaces = await self._fetchrow(self.sql.sweep, self.clock.now(), rows)
            if gone:
                self.feed.committed(spaces)
            swept += gone
            if not gone or (seen < rows and gone == seen):
                break
            elapsed = perf_counter() - started
            await asyncio.sleep(pace.next(elapsed, elapsed, int(self.writer.busy)))
        self._pace_until = perf_counter() + PACE_KEPT_SECONDS
        (newest,) = await self._fetchrow(self.sql.newest)
        await self._prune(self.sql.prune, self._retention.prunable(newest))
        await self._prune(self.sql.forget, ids_expired_at(self.clock.now()))
        return swept

    async def forget(self, space: str, *, last: str | None = None) -> None:
        rows, *others = self.sql.erase
        await self._erase(rows, space, FORGET_ROWS, last)
        for sql in others:
            await self._erase(sql, space, FORGET_ROWS)
        for sql in self.sql.vacuum:
            await self._vacuum(sql)
        if last is not None:
            await self._erase(rows, space, FORGET_ROWS, None)
            await self._vacuum(self.sql.vacuum[0])

    async def _erase(self, sql: str, *arguments: object) -> None:
        while (await self._fetchrow(sql, *arguments))[0]:
            await asyncio.sleep(0)

    async def _vacuum(self, sql: str) -> None:
        """Free the space of deleted rows. A user who does not own the tables leaves it to
        autovacuum."""
        await self.writes.run(lambda connection: connection.execute(sql))

    async def _prune(self, sql: str, bound: int) -> None:
        started = perf_counter()
        while (await self._fetchrow(sql, bound, PRUNE_ROWS))[0] == PRUNE_ROWS:
            await asyncio.sleep(perf_counter() - started if self.writer.busy else 0)
            started = perf_counter()

    async def _fetchrow(self, sql: str, *arguments: object) -> Any:
        return await self.writes.run(lambda connection: connection.fetchrow(sql, *arguments))

    async def spaces(self) -> AsyncIterator[str]:
        after = ""
        while spaces := await self._spaces(after):
            for after in spaces:
                yield after

    async def _spaces(self, after: str) -> list[str]:
        arguments = (after, self.clock.now(), SPACES_ROWS)
        rows = await self.reads.run(
            lambda connection: connection.fetch(self.sql.spaces, *arguments)
        )
        return [space for (space,) in rows]

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        return snapshot(self.reads, self.sql, self.clock)

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        await self.writer.stop()
        await self.feed.close()
        await self.writes.close()
        await self.reads.close()


def _new_pace() -> Pace:
    return Pace(rows_max=SWEEP_ROWS_MAX, rows_busy=SWEEP_ROWS_BUSY, busy_seconds=SWEEP_BUSY_SECONDS)
