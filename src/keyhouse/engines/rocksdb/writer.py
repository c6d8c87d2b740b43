"""RocksDB's writer, in groups: see `keyhouse.engines.commit_queue`.

A group is prepared and written on the event loop's thread, in memory and into the system's cache; the sync that makes it
durable runs on the writer's own thread. RocksDB may not be ready to take a group, because it has to wait.
"""

import time
from collections.abc import Callable
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engines.commit_queue import CommitQueue, Group, Wait
from keyhouse.engines.rocksdb.database import Database, Stall
from keyhouse.engines.rocksdb.encoding import Keys
from keyhouse.engines.rocksdb.error_map import CLOSED, STALLED
from keyhouse.engines.rocksdb.transaction import Transaction
from keyhouse.engines.rocksdb.view import View
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

STALL_SECONDS: Final = 60.0
"""How long RocksDB may take to be ready for a write, before the caller is told."""

STALL_RETRY_SECONDS: Final = 0.002

Committed = Callable[[list[tuple[int, Keys]]], None]


class Writer(CommitQueue):
    """`committed` is told, on the loop, what each durable group did."""

    def __init__(self, database: Database, view: View, clock: Clock, committed: Committed) -> None:
        super().__init__("rocksdb")
        self._database = database
        self._view = view
        self._clock = clock
        self._committed = committed
        self._written: Transaction | None = None  # and not yet known to be durable
        self._told: list[tuple[int, Keys]] = []

    def _closed_error(self) -> KeyhouseError:
        return ClosedError(CLOSED, folder=self._database.folder)

    def _translated(self, error: Exception) -> Exception:
        return error  # the database has

    def _revive(self) -> None:
        """Open the database anew after a failure. On the loop, so that no read comes between: rare, and slow."""
        if self._database.failed is not None or not self._database.is_open:
            self._view.reopen()

    def _prepare(self, group: Group) -> bool:
        try:
            return self._write(group)
        except Stall as stall:
            raise Wait from stall

    def _write(self, group: Group) -> bool:
        transaction = Transaction(
            self._database, self._view.revision, self._view.oldest, self._clock.now()
        )
        for job in group:
            job.run(transaction)
        if transaction.batch.is_empty():
            return False
        self._view.hold(transaction.rows)
        self._database.write(transaction.batch)
        self._written = transaction
        return True

    def _whole(self, group: Group) -> KeyhouseError | None:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                return self._commit(group) if self._write(group) else None
            except Stall as stall:
                if time.monotonic() >= deadline:
                    return UnavailableError(
                        STALLED, folder=self._database.folder, detail=str(stall.__cause__)
                    )
                time.sleep(STALL_RETRY_SECONDS)
            except KeyhouseError as error:
                return error

    def _commit(self, group: Group) -> KeyhouseError | None:
        try:
            self._database.sync()
        except KeyhouseError as error:
            return error
        return None

    def _confirm(self, failure: KeyhouseError | None) -> None:
        written, self._written = self._written, None
        if written is not None and failure is None:
            self._view.refresh(written.revision, written.oldest)
            self._told = written.commits

    def _announce(self) -> None:
        if self._told:
            told, self._told = self._told, []
            self._committed(told)

    def _release(self) -> None:
        self._database.close()
