"""The engine on a SQLite file: reads on the caller's thread, writes through the writer, watches
through the feed.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import starmap
from time import perf_counter
from typing import Final, NamedTuple

import apsw

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Page, Row, Span
from keyhouse.engines.pace import PAUSE_SECONDS_MAX, Pace
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sqlite.connections import open_reader, open_writer
from keyhouse.engines.sqlite.feed import Feed
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.snapshot import Snapshot
from keyhouse.engines.sqlite.sql import Statements, statements, stop_of
from keyhouse.engines.sqlite.transaction import SqliteTransaction
from keyhouse.engines.sqlite.writer import SqliteWrite, SqliteWriter
from keyhouse.engines.thread_commit_queue import ThreadWork
from keyhouse.limits import CHANGES_KEPT

SWEEP_ROWS_BUSY: Final = 16
"""Rows that a sweep removes in one transaction while others write: it shares theirs."""

SWEEP_ROWS_MAX: Final = 2_000
"""The limit while nobody else writes."""

SWEEP_BUSY_SECONDS: Final = 0.000_06
"""Time of a step's statements while others write, on the fastest disks: a fraction of a commit of
theirs. The pages that it adds to that commit cost as much."""

PRUNE_ROWS: Final = 64
"""Changes, and batch ids, that a sweep prunes in one transaction; then it pauses as long."""

FORGET_ROWS: Final = 500
"""Rows, changes and batch ids that `forget` erases in one transaction; then it pauses as long."""

CAPABILITIES: Final = Capabilities(name="sqlite", durable=True, shared=True, snapshots=True)


class _Step(NamedTuple):
    """One step of a sweep: rows removed, duration, newest revision before and after it."""

    removed: int
    seconds: float
    before: int
    after: int


class SqliteEngine:
    """See `keyhouse.engine` for the contract of each method."""

    def __init__(
        self,
        writer: apsw.Connection,
        reader: apsw.Connection,
        sql: Statements,
        clock: Clock,
        changes_kept: int,
    ) -> None:
        self._clock = clock
        self._path = writer.filename
        self._sql = sql
        self._changes_kept = changes_kept
        self._pace = _new_pace()
        self._swept_at = -1
        """The newest revision after the last sweep, whose pace the next one keeps if it is the same
        then."""
        self._reader = Reader(reader, sql, clock)
        self.read = self._reader.read  # a method that calls it would cost a tenth
        self._feed = Feed(self._reader, sql, clock)
        self._writer = SqliteWriter(writer, sql, clock, committed=self._feed.pull)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        changes_kept: int = CHANGES_KEPT,
        layout: Layout | None = None,
        create: bool = True,
    ) -> "SqliteEngine":
        """Open or create the file; its folder must exist. Waits while another process creates it.

        Creates the layout's tables if they are missing; with `create=False`, UsageError. One file
        can hold the tables of several layouts.
        """
        sql = statements(layout or Layout())
        writer = open_writer(os.fspath(path), sql, create=create)
        try:
            reader = open_reader(os.fspath(path))
        except BaseException:
            writer.close()
            raise
        return cls(writer, reader, sql, clock or SystemClock(), changes_kept)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def clock(self) -> Clock:
        return self._clock

    async def scan(
        self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        bindings = (space, span.start, stop_of(span.stop), self._clock.now(), limit + 1)
        found = self._reader.all(self._sql.scans[reverse, keys_only], bindings)
        return Page(
            list(starmap(Row, found[1 : limit + 1])), len(found) > limit + 1, found[0][0] or 0
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        rows = len(batch.checks) + len(batch.puts) + len(batch.deletes) + len(batch.adds)
        size = sum([len(put.value) for put in batch.puts])
        return await self._writer.submit(
            SqliteWrite(
                lambda transaction: transaction.apply(space, batch, size), rows=rows, bytes=size
            )
        )

    def watch(
        self,
        space: str,
        span: Span,
        *,
        since: int | None = None,
        caught_up: CaughtUp | None = None,
    ) -> AsyncGenerator[Change, None]:
        return self._feed.changes(space, span, since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        swept, last = 0, self._reader.revision()
        if last != self._swept_at:
            self._pace = _new_pace()
        while swept < limit:
            asked, started = min(self._pace.rows, limit - swept), perf_counter()
            step = await self._writer.submit(SqliteWrite(_sweep_step(asked), rows=asked))
            swept += step.removed
            others, last = step.before - last, step.after  # each commit is one revision
            if step.removed < asked:
                break
            elapsed = perf_counter() - started
            await _pause(self._pace.next(step.seconds, elapsed, others))
        self._swept_at = last
        await self._prune()
        return swept

    async def _prune(self) -> None:
        """Prune in small steps, with twice the rows that others commit: so it always ends."""
        kept, rows, settled = self._changes_kept, PRUNE_ROWS, self._writer.settled
        while True:
            started = perf_counter()
            write = SqliteWrite(partial(_prune_step, kept, rows), rows=rows)
            if await self._writer.submit(write) < rows:
                return
            await _pause(min(perf_counter() - started, PAUSE_SECONDS_MAX))
            others, settled = self._writer.settled - settled, self._writer.settled
            rows = min(SWEEP_ROWS_MAX, max(PRUNE_ROWS, 2 * others))

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._erase(space, last)
        await self._writer.submit(ThreadWork(self._writer.erase_free_pages))
        if last is not None:
            await self._writer.submit(ThreadWork(self._writer.overwrite_deleted))
            try:
                await self._erase(space, None)
            finally:
                await self._writer.submit(ThreadWork(self._writer.truncate_log))

    async def _erase(self, space: str, kept: str | None) -> None:
        def erase(transaction: SqliteTransaction) -> int:
            return transaction.forget(space, FORGET_ROWS, kept)

        started = perf_counter()
        while await self._writer.submit(SqliteWrite(erase, alone=True)):
            await _pause(min(perf_counter() - started, PAUSE_SECONDS_MAX))
            started = perf_counter()

    async def spaces(self) -> AsyncIterator[str]:
        for space in self._reader.spaces():
            yield space

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        snapshot = Snapshot(self._path, self._sql, self._clock)
        try:
            yield snapshot
        finally:
            snapshot.close()

    async def close(self) -> None:
        self._feed.close()
        await self._writer.stop()
        self._reader.connection.close()
        await self._writer.close()  # last, so that it checkpoints, on its own thread


def _new_pace() -> Pace:
    return Pace(rows_max=SWEEP_ROWS_MAX, rows_busy=SWEEP_ROWS_BUSY, busy_seconds=SWEEP_BUSY_SECONDS)


def _sweep_step(rows: int) -> Callable[[SqliteTransaction], _Step]:
    def step(transaction: SqliteTransaction) -> _Step:
        transaction.flush()  # the work of others, which is not counted
        before, started = transaction.revision, perf_counter()
        removed = transaction.sweep(rows)
        return _Step(removed, perf_counter() - started, before, transaction.revision)

    return step


def _prune_step(kept: int, rows: int, transaction: SqliteTransaction) -> int:
    return transaction.prune(kept, rows)


async def _pause(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
