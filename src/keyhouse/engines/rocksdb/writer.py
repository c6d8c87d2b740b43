"""RocksDB's writer, in groups: see `keyhouse.engines.thread_commit_queue`.

A group is executed on the event loop's thread, into memory and the system's cache; the
sync that makes it durable runs on the writer's thread. A write stall, in which RocksDB takes no
writes until it has flushed or compacted, is waited for on the thread.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engines.rocksdb.database import Database, WriteStall
from keyhouse.engines.rocksdb.encoding import CommittedKeys, prefix_of
from keyhouse.engines.rocksdb.error_map import CLOSED, STALLED
from keyhouse.engines.rocksdb.transaction import RocksdbTransaction
from keyhouse.engines.rocksdb.view import CommittedView
from keyhouse.engines.thread_commit_queue import ThreadCommitQueue, TransactionGroup, WouldBlock
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

STALL_SECONDS: Final = 60.0
"""A write stall that lasts longer fails the group."""

STALL_RETRY_SECONDS: Final = 0.002

Commits = list[tuple[int, CommittedKeys]]


class RocksdbWriter(ThreadCommitQueue):
    """`committed` is called on the loop with the commits of each durable group."""

    def __init__(
        self,
        database: Database,
        view: CommittedView,
        clock: Clock,
        committed: Callable[[Commits], None],
    ) -> None:
        super().__init__("rocksdb")
        self.database = database
        self._view = view
        self._clock = clock
        self._committed = committed
        self._in_flight: RocksdbTransaction | None = None  # written, not known to be durable
        self._unannounced: Commits = []
        self._compactions: set[asyncio.Future[None]] = set()

    def _closed_error(self) -> KeyhouseError:
        return ClosedError(CLOSED, folder=self.database.folder)

    def _translated(self, error: Exception) -> Exception:
        return error  # the database has done so

    def recover(self) -> None:
        """Reopen the database after a failure. On the loop, so that no read interferes."""
        failed = self.database.failed
        if failed is not None and self._compactions:
            raise UnavailableError(
                "A write failed, and the folder is reopened when an erasure ends; try again.",
                folder=self.database.folder,
                detail=str(failed),
            )
        if failed is not None or not self.database.is_open:
            self._view.reopen()

    def execute(self, group: TransactionGroup) -> bool:
        try:
            return self._write(group)
        except WriteStall as stall:
            raise WouldBlock from stall

    def _write(self, group: TransactionGroup) -> bool:
        transaction = RocksdbTransaction(
            self.database, self._view.revision, self._view.oldest, self._clock.now()
        )
        for write in group.writes:
            write.execute(transaction)
        if transaction.batch.is_empty():
            return False
        self._view.hold(transaction.rows)
        self.database.write(transaction.batch)
        self._in_flight = transaction
        return True

    def _commit_on_thread(self, group: TransactionGroup) -> KeyhouseError | None:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                return self.make_durable(group) if self._write(group) else None
            except WriteStall as stall:
                if time.monotonic() >= deadline:
                    return UnavailableError(
                        STALLED, folder=self.database.folder, detail=str(stall.__cause__)
                    )
                time.sleep(STALL_RETRY_SECONDS)
            except KeyhouseError as error:
                return error

    def make_durable(self, group: TransactionGroup) -> KeyhouseError | None:
        try:
            self.database.sync()
        except KeyhouseError as error:
            return error
        return None

    def _finish(self, failure: KeyhouseError | None) -> None:
        durable, self._in_flight = self._in_flight, None
        if durable is not None and failure is None:
            self._view.refresh(durable.revision, durable.oldest)
            self._unannounced = durable.commits

    def _announce(self) -> None:
        if self._unannounced:
            commits, self._unannounced = self._unannounced, []
            self._committed(commits)

    async def compact(self, space: str, *, rows_only: bool = False) -> None:
        """Rewrite the files that may have deleted rows of a space, while others commit."""
        compact = partial(self.database.compact, prefix_of(space), rows_only=rows_only)
        work = asyncio.ensure_future(asyncio.to_thread(compact))
        self._compactions.add(work)
        work.add_done_callback(self._compactions.discard)
        await asyncio.shield(work)  # a thread cannot be cancelled

    async def stop(self) -> None:
        await super().stop()
        if self._compactions:
            await asyncio.wait(self._compactions)

    def _close_files(self) -> None:
        self.database.close()
