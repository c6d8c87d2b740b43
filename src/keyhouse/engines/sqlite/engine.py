"""The engine on a SQLite file: reads on the caller's thread, writes through the writer, watches
through the feed.
"""

import asyncio
import os
import sys
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
from keyhouse.engines.retention import Kept, Retention
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sqlite.connections import open_reader, open_writer
from keyhouse.engines.sqlite.feed import Feed
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.snapshot import Snapshot
from keyhouse.engines.sqlite.sql import Statements, statements, stop_of
from keyhouse.engines.sqlite.transaction import SqliteTransaction
from keyhouse.engines.sqlite.writer import SqliteCommit, SqliteWrite, SqliteWriter
from keyhouse.engines.thread_commit_queue import ThreadWork
from keyhouse.limits import CHANGES_KEPT

SWEEP_ROWS_BUSY: Final = 16
"""Rows that a sweep removes in one transaction while others write: it shares theirs."""

SWEEP_ROWS_MAX: Final = 2_000
"""The limit while nobody else writes."""

SWEEP_BUSY_SECONDS: Final = 0.000_06
"""Time of a step's statements while others write, on the fastest disks: a fraction of a commit of
theirs. The pages that it adds to that commit cost as much."""

PRUNE_ROWS_BUSY: Final = 2
"""Changes, and batch ids, that a sweep prunes in one transaction while others write. A change holds
the keys of a whole commit, thousands at most."""

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

    capabilities: Final = CAPABILITIES

    def __init__(
        self,
        writer: apsw.Connection,
        reader: apsw.Connection,
        sql: Statements,
        clock: Clock,
        changes_kept: Kept,
    ) -> None:
        self.clock = clock
        self._path = writer.filename
        self.sql = sql
        self._retention = Retention(changes_kept, clock)
        self._pace = _new_pace(SWEEP_ROWS_BUSY)
        self._swept_at = -1
        """The newest revision after the last sweep, whose pace the next one keeps if it is the same
        then."""
        self.reader = Reader(reader, sql, clock)
        self.read = self.reader.read  # a method that calls it would cost a tenth
        self.feed = Feed(self.reader, sql, clock)
        self.writer = SqliteWriter(writer, sql, clock, committed=self.feed.pull)
        self._submit = self.writer.submit

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
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
        bindings = (space, span.start, stop_of(span.stop), self.clock.now(), limit + 1)
        sql = self.sql.scans[reverse, keys_only]
        if bytes_max is None or keys_only:
            results, is_cut = self.reader.all(sql, bindings), False
        else:
            results, is_cut = self.reader.fitting(sql, bindings, bytes_max)
        more = is_cut or len(results) > limit + 1
        return Page(list(starmap(Row, results[1 : limit + 1])), more, results[0][0] or 0)

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self._submit(SqliteCommit(space, batch))

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return self.feed.changes(space, span, since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        if self.reader.revision() != self._swept_at:
            self._pace = _new_pace(SWEEP_ROWS_BUSY)
        swept = await self._in_steps(self._pace, SqliteTransaction.sweep, limit)
        last = self._retention.prunable(self.reader.revision())  # what others add meanwhile is kept

        def prune(transaction: SqliteTransaction, rows: int) -> int:
            return transaction.prune(last, rows)

        await self._in_steps(_new_pace(PRUNE_ROWS_BUSY), prune, sys.maxsize)
        return swept

    async def _in_steps(
        self, pace: Pace, remove: Callable[[SqliteTransaction, int], int], limit: int
    ) -> int:
        """Remove up to `limit` rows, each step in its own transaction; return their number."""
        removed, self._swept_at = 0, self.reader.revision()
        while removed < limit:
            asked, started = min(pace.rows, limit - removed), perf_counter()
            write = SqliteWrite(partial(_remove_step, remove, asked), rows=asked)
            step = await self.writer.submit(write)
            removed += step.removed
            others = step.before - self._swept_at  # each commit is one revision
            self._swept_at = step.after
            if step.removed < asked:
                break
            await pause(pace.next(step.seconds, perf_counter() - started, others))
        return removed

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._erase(space, last)
        await self.writer.submit(ThreadWork(self.writer.erase_free_pages))
        if last is not None:
            await self.writer.submit(ThreadWork(self.writer.overwrite_deleted))
            try:
                await self._erase(space, None)
            finally:
                await self.writer.submit(ThreadWork(self.writer.truncate_log))

    async def _erase(self, space: str, kept: str | None) -> None:
        def erase(transaction: SqliteTransaction) -> int:
            return transaction.forget(space, FORGET_ROWS, kept)

        started = perf_counter()
        while await self.writer.submit(SqliteWrite(erase, alone=True)):
            await pause(min(perf_counter() - started, PAUSE_SECONDS_MAX))
            started = perf_counter()

    async def spaces(self) -> AsyncIterator[str]:
        for space in self.reader.spaces():
            yield space

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        snapshot = Snapshot(self._path, self.sql, self.clock)
        try:
            yield snapshot
        finally:
            snapshot.close()

    async def close(self) -> None:
        self.feed.close()
        await self.writer.stop()
        self.reader.connection.close()
        await self.writer.close()  # last, so that it checkpoints, on its own thread


def _new_pace(rows_busy: int) -> Pace:
    return Pace(rows_max=SWEEP_ROWS_MAX, rows_busy=rows_busy, busy_seconds=SWEEP_BUSY_SECONDS)


def _remove_step(
    remove: Callable[[SqliteTransaction, int], int], rows: int, transaction: SqliteTransaction
) -> _Step:
    transaction.flush()  # the work of others, which is not counted
    before, started = transaction.revision, perf_counter()
    removed = remove(transaction, rows)
    return _Step(removed, perf_counter() - started, before, transaction.revision)


async def pause(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
