"""The engine on a SQLite file: reads on the caller's thread, writes through the writer, watches through the feed."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import starmap
from typing import Final

import apsw

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, Change, Page, Row, Span
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sqlite.feed import Feed
from keyhouse.engines.sqlite.file import open_reader, open_writer
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.snapshot import Snapshot
from keyhouse.engines.sqlite.sql import Statements, statements, stop_of
from keyhouse.engines.sqlite.transaction import Transaction
from keyhouse.engines.sqlite.writer import SqliteJob, Writer
from keyhouse.limits import CHANGES_KEPT

SWEEP_ROWS: Final = 500
"""Rows that a sweep removes in one transaction: between two of them, others commit."""

PRUNE_ROWS: Final = 2_000
"""Changes, and batch ids, that a sweep prunes in one transaction."""

CAPABILITIES: Final = Capabilities(name="sqlite", durable=True, shared=True, snapshots=True)


class SqliteEngine:
    """See `keyhouse.engine` for what each method promises."""

    def __init__(
        self, writer: apsw.Connection, reader: apsw.Connection, sql: Statements, clock: Clock, changes_kept: int
    ) -> None:
        self._clock = clock
        self._path = writer.filename
        self._sql = sql
        self._changes_kept = changes_kept
        self._reader = Reader(reader, sql, clock)
        self._rows = self._reader.rows
        self._feed = Feed(self._reader, sql, clock)
        self._writer = Writer(writer, sql, clock, committed=self._feed.pull)

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
        """Open the file, or make it; its folder must be there. Waits while another process is making it.

        The layout's tables are made when they are not there, unless `create` is false: then UsageError. One file can hold
        those of several layouts.
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

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        return self._rows(space, keys)

    async def scan(self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False) -> Page:
        bindings = (space, span.start, stop_of(span.stop), self._clock.now(), limit + 1)
        found = self._reader.all(self._sql.scans[reverse, keys_only], bindings)
        return Page(list(starmap(Row, found[1 : limit + 1])), len(found) > limit + 1, found[0][0] or 0)

    async def commit(self, space: str, batch: Batch) -> int | None:
        rows = len(batch.checks) + len(batch.puts) + len(batch.deletes) + len(batch.adds)
        size = sum([len(put.value) for put in batch.puts])
        return await self._writer.submit(
            SqliteJob(lambda transaction: transaction.apply(space, batch, size), rows=rows, bytes=size)
        )

    def watch(self, space: str, span: Span, *, since: int | None = None) -> AsyncGenerator[Change, None]:
        return self._feed.changes(space, span, since)

    async def sweep(self, *, limit: int) -> int:
        swept = 0
        while True:
            rows = min(SWEEP_ROWS, limit - swept)
            gone, pruned = await self._tidy(rows)
            swept += gone
            if (gone < rows or swept == limit) and pruned < PRUNE_ROWS:
                return swept

    async def _tidy(self, rows: int) -> tuple[int, int]:
        kept = self._changes_kept

        def work(transaction: Transaction) -> tuple[int, int]:
            return transaction.sweep(rows), transaction.prune(kept, PRUNE_ROWS)

        return await self._writer.submit(SqliteJob(work, alone=True))

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
        await self._writer.close()  # last, so that it is the one that checkpoints, on its own thread
