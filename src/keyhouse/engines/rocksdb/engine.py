"""The engine on a RocksDB folder: reads on the caller's thread, writes through the writer, watches
through the feed.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Final

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Page, Row, Span
from keyhouse.engines.commit_queue import Answer
from keyhouse.engines.pace import PAUSE_SECONDS_MAX, Pace
from keyhouse.engines.retention import Kept, Retention
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.feed import Feed
from keyhouse.engines.rocksdb.snapshot import Snapshot
from keyhouse.engines.rocksdb.transaction import RocksdbTransaction, SweepResult
from keyhouse.engines.rocksdb.writer import RocksdbWriter
from keyhouse.engines.thread_commit_queue import TransactionWrite
from keyhouse.limits import CHANGES_KEPT

SWEEP_ROWS_MAX: Final = 500
"""Rows that a sweep removes or examines in one group; others commit between two groups."""

SWEEP_ROWS_BUSY: Final = 64
"""Rows in one group while others write: they wait for it."""

SWEEP_BUSY_SECONDS: Final = 0.001
"""Time of a group of a sweep while others write."""

FORGET_ROWS: Final = 500
"""Rows, changes and expiries that `forget` examines in one group; then it pauses as long."""

PRUNE_ROWS: Final = 2_000
"""Batch ids that a sweep deletes in one group."""

COMMIT_BYTES: Final = 16 * 1_024 * 1_024
"""The driver holds Python's lock while RocksDB copies a batch: for this, a tenth of a second."""

CAPABILITIES: Final = Capabilities(
    name="rocksdb", durable=True, shared=False, snapshots=True, commit_bytes_max=COMMIT_BYTES
)


class RocksdbEngine:
    """See `keyhouse.engine` for the contract of each method."""

    capabilities: Final = CAPABILITIES

    def __init__(self, database: Database, clock: Clock, changes_kept: Kept) -> None:
        self.clock = clock
        self._folder = database.folder
        self._retention = Retention(changes_kept, clock)
        self.feed = Feed(database, clock)
        self.view = self.feed.view
        self.writer = RocksdbWriter(database, self.view, clock, committed=self.feed.offer)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
    ) -> "RocksdbEngine":
        """Open or create the folder; its parent must exist. Raises LockedError if it is open
        already.
        """
        database = Database(os.fspath(path))
        database.open()
        return cls(database, clock or SystemClock(), changes_kept)

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return self.view.rows(space, keys, bytes_max)

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
        return self.view.page(
            space, span, limit, reverse=reverse, keys_only=keys_only, bytes_max=bytes_max
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        rows = len(batch.checks) + len(batch.puts) + len(batch.deletes) + len(batch.adds)
        size = sum([len(put.value) for put in batch.puts])
        return await self.writer.submit(
            TransactionWrite(
                lambda transaction: transaction.apply(space, batch), rows=rows, bytes=size
            )
        )

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return self.feed.changes(space, span, since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        pace = Pace(
            rows_max=SWEEP_ROWS_MAX, rows_busy=SWEEP_ROWS_BUSY, busy_seconds=SWEEP_BUSY_SECONDS
        )
        swept, more, settled = 0, True, self.writer.settled
        while swept < limit and more:
            started = perf_counter()
            step = await self._sweep(min(pace.rows, limit - swept))
            swept, more = swept + step.rows, step.more
            others, settled = self.writer.settled - settled - 1, self.writer.settled
            elapsed = perf_counter() - started
            await asyncio.sleep(pace.next(elapsed, elapsed, others))
        while await self._prune():
            pass
        return swept

    async def _sweep(self, rows: int) -> SweepResult:
        return await self.writer.submit(
            TransactionWrite(lambda transaction: transaction.sweep(rows, rows), alone=True)
        )

    async def _prune(self) -> bool:
        def prune(transaction: RocksdbTransaction) -> bool:
            last = self._retention.prunable(transaction.revision)
            return transaction.prune(last, PRUNE_ROWS)

        return await self.writer.submit(TransactionWrite(prune, alone=True))

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._erase_rows(space, last)
        revision: int | None = self.view.oldest - 1
        while revision is not None:
            revision = await self._alone(partial(_forget_changes, space, revision))
        due: bytes | None = b""
        while due is not None:
            due = await self._alone(partial(_forget_expiries, space, due))
        await self.writer.compact(space)
        if last is not None:
            await self._erase_rows(space, None)
            await self.writer.compact(space, rows_only=True)

    async def _erase_rows(self, space: str, kept: str | None) -> None:
        while await self._alone(lambda transaction: transaction.forget(space, FORGET_ROWS, kept)):
            pass

    async def _alone(self, work: Callable[[RocksdbTransaction], Answer]) -> Answer:
        started = perf_counter()
        answer = await self.writer.submit(TransactionWrite(work, alone=True))
        await asyncio.sleep(min(perf_counter() - started, PAUSE_SECONDS_MAX))
        return answer

    async def spaces(self) -> AsyncIterator[str]:
        space = self.view.next_space(b"")
        while space is not None:
            yield space
            space = self.view.next_space(space.encode() + b"\1")

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        snapshot = Snapshot(self.view, self.clock, self._folder)
        try:
            yield snapshot
        finally:
            snapshot.close()

    async def close(self) -> None:
        self.feed.close()
        await self.writer.stop()
        self.view.close()
        await self.writer.close()


def _forget_changes(space: str, after: int, transaction: RocksdbTransaction) -> int | None:
    return transaction.forget_changes(space, after, FORGET_ROWS)


def _forget_expiries(space: str, start: bytes, transaction: RocksdbTransaction) -> bytes | None:
    return transaction.forget_expiries(space, start, FORGET_ROWS)
