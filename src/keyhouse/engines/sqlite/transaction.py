"""What is done inside one write transaction: batches, sweeping, pruning. Knows nothing of threads, groups or waiting.

Within a batch everything that can refuse it comes before its first write, so that a refusal has nothing to undo and the
other batches of the transaction go on.
"""

from collections.abc import Iterable

import apsw

from keyhouse.engine import Add, Batch, Check, Put
from keyhouse.engines.counter import sum_of
from keyhouse.engines.sqlite.changes import Keys, encode
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.limits import BATCH_ID_KEPT_SECONDS


class Transaction:
    """One write transaction, from after BEGIN to before COMMIT, at one moment `now`."""

    __slots__ = ("_cursor", "_log", "_sql", "now", "revision", "wrote")

    def __init__(self, cursor: apsw.Cursor, sql: Statements, now: int) -> None:
        self._cursor = cursor
        self._sql = sql
        self._log: list[tuple[int, str, bytes | str]] = []
        self.now = now
        self.revision: int = cursor.execute(sql.head).get or 0
        self.wrote = False

    def apply(self, space: str, batch: Batch) -> int | None:
        if batch.id is not None and (revision := self._applied(space, batch.id)) is not None:
            return revision
        if batch.checks and not self._holds(space, batch.checks):
            return None
        sums = self._sums(space, batch.adds) if batch.adds else []
        if not sums and not batch.puts and not batch.deletes:
            return self.revision
        revision = self.revision + 1
        self._write(space, revision, [*batch.puts, *sums], batch.deletes)
        if batch.id is not None:
            self._cursor.execute(self._sql.remember, (space, batch.id, revision, self.now))
        return revision

    def sweep(self, limit: int) -> int:
        """Delete up to `limit` expired rows, as one change of each space they were in.

        Few statements, however many rows: it runs on a thread, which must win Python's lock back after each.
        """
        count = 0
        for space, keys, rows in self._cursor.execute(self._sql.expired, (self.now, limit)):
            self._record(space, keys)
            count += rows
        if count:
            self._cursor.execute(self._sql.delete_expired, (self.now, limit))
        return count

    def prune(self, kept: int, limit: int) -> int:
        """Drop up to `limit` of the oldest changes beyond `kept`, and as many forgotten batch ids; how many went."""
        before = self._cursor.connection.total_changes()
        self._cursor.execute(self._sql.prune, (kept, limit))
        self._cursor.execute(self._sql.forget, (self._forgotten(), limit))
        count = self._cursor.connection.total_changes() - before
        self.wrote = self.wrote or count > 0
        return count

    def finish(self) -> None:
        """Write the log; nothing may be applied after it."""
        if self._log:
            self._cursor.executemany(self._sql.log, self._log)

    def _applied(self, space: str, batch_id: str) -> int | None:
        revision: int | None = self._cursor.execute(self._sql.applied, (space, batch_id, self._forgotten())).get
        return revision

    def _forgotten(self) -> int:
        return self.now - BATCH_ID_KEPT_SECONDS * 1_000

    def _holds(self, space: str, checks: Iterable[Check]) -> bool:
        execute, state, now = self._cursor.execute, self._sql.state, self.now
        for check in checks:
            found = None
            for revision, expires in execute(state, (space, check.key)):
                found = revision if expires is None or expires > now else None
            if found != check.revision:
                return False
        return True

    def _sums(self, space: str, adds: Iterable[Add]) -> list[Put]:
        sums = []
        for add in adds:
            value, kept = None, None
            for found, _, expires in self._cursor.execute(self._sql.read, (space, add.key)):
                if expires is None or expires > self.now:
                    value, kept = found, expires
            sums.append(Put(add.key, sum_of(add.key, value, add.by), kept))
        return sums

    def _write(self, space: str, revision: int, puts: list[Put], deletes: tuple[str, ...]) -> None:
        if puts:
            most = self._sql.inline_bytes_max
            rows: list[tuple[str | bytes | int | None, ...]] = [
                (space, put.key, revision, put.expires, None, put.value)
                if len(put.value) <= most
                else (space, put.key, revision, put.expires, self._large(put.value), None)
                for put in puts
            ]
            if self._sql.stamped:
                rows = [(*row, self.now) for row in rows]
            self._cursor.executemany(self._sql.put, rows)
        if deletes:
            self._cursor.executemany(self._sql.delete, [(space, key) for key in deletes])
        self._record(space, encode(Keys([put.key for put in puts], deletes)))

    def _large(self, value: bytes) -> int:
        self._cursor.execute(self._sql.put_large, (value,))
        return self._cursor.connection.last_insert_rowid()

    def _record(self, space: str, keys: bytes | str) -> None:
        self.revision += 1
        self.wrote = True
        self._log.append((self.revision, space, keys))
