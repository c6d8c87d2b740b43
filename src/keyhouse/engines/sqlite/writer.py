"""The one connection that writes, in groups: see `keyhouse.engines.thread_commit_queue`.

The statements of a group run on the event loop's thread, where they touch cached pages only;
COMMIT, which writes and syncs the WAL and sometimes checkpoints it, runs on the writer's thread.
Running the statements there too was measured and is slower: the driver releases Python's lock at
every statement and has to win it back from a busy loop. Only one of the two threads uses the
connection at a time.
"""

from collections.abc import Callable

import apsw

from keyhouse.clock import Clock
from keyhouse.engine import Batch
from keyhouse.engines.commit_queue import Answer
from keyhouse.engines.sqlite.connections import until_available
from keyhouse.engines.sqlite.error_map import translate, translate_commit_error
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.engines.sqlite.transaction import (
    REJECTED_VALUE,
    RejectedValueError,
    SqliteTransaction,
)
from keyhouse.engines.thread_commit_queue import (
    GROUP_BYTES_MAX,
    GROUP_ROWS_MAX,
    ThreadCommitQueue,
    TransactionGroup,
    TransactionWrite,
    WouldBlock,
)
from keyhouse.errors import ClosedError, KeyhouseError


class SqliteWrite(TransactionWrite[Answer]):
    """Any error not listed here is one of the whole transaction."""

    OWN_ERRORS = (KeyhouseError,)
    EXCLUDING_ERRORS = REJECTED_VALUE

    __slots__ = ()


class SqliteCommit(SqliteWrite[int | None]):
    """A batch of one space. It holds its arguments: a closure would cost more than the queue."""

    __slots__ = ("_batch", "_space")

    def __init__(self, space: str, batch: Batch) -> None:
        puts = batch.puts
        self._space = space
        self._batch = batch
        self.rows = rows = len(batch.checks) + len(puts) + len(batch.deletes) + len(batch.adds)
        self.bytes = size = (
            len(puts[0].value) if len(puts) == 1 else sum([len(put.value) for put in puts])
        )
        self.alone = rows > GROUP_ROWS_MAX or size > GROUP_BYTES_MAX
        self.error = None
        self.excluded = False

    def _apply(self, transaction: SqliteTransaction) -> int | None:
        return transaction.apply(self._space, self._batch, self.bytes)


class SqliteWriter(ThreadCommitQueue):
    """`committed` is called on the loop after each group."""

    def __init__(
        self,
        connection: apsw.Connection,
        sql: Statements,
        clock: Clock,
        committed: Callable[[], None],
    ) -> None:
        super().__init__("sqlite")
        self.connection = connection
        self._path = connection.filename
        self._cursor = connection.cursor()
        self._sql = sql
        self._clock = clock
        self._committed = committed

    def _announce(self) -> None:
        self._committed()

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("The engine is closed.", file=self._path)

    def _translated(self, error: Exception) -> KeyhouseError:
        return translate(error, self._path)

    def recover(self) -> None:
        """Roll back a transaction that an earlier group left open: every later group would fail."""
        self._roll_back()

    def execute(self, group: TransactionGroup) -> bool:
        try:
            return self._execute(group)
        except apsw.BusyError as error:
            raise WouldBlock from error

    def _execute(self, group: TransactionGroup) -> bool:
        """Run the group's statements, again without the writes that turn out to be excluded."""
        gathers = True
        while True:
            self._cursor.execute("BEGIN IMMEDIATE")
            try:
                transaction = SqliteTransaction(
                    self._cursor, self._sql, self._clock.now(), gathers=gathers
                )
                complete = self._execute_in(transaction, group)
            except RejectedValueError:
                self._roll_back()
                gathers = False
                continue
            except BaseException:
                self._roll_back()
                raise
            if complete and transaction.wrote:
                return True
            self._roll_back()
            if complete:
                return False

    def _execute_in(self, transaction: SqliteTransaction, group: TransactionGroup) -> bool:
        """Return False if a write failed half-way: the transaction holds a part of it."""
        for write in group.writes:
            if not write.excluded:
                write.execute(transaction)
                if write.excluded:
                    return False
        transaction.finish()
        return True

    def _commit_on_thread(self, group: TransactionGroup) -> KeyhouseError | None:
        try:
            wrote = until_available(lambda: self._execute(group))
        except Exception as error:
            return translate(error, self._path)
        return self.make_durable(group) if wrote else None

    def make_durable(self, group: TransactionGroup) -> KeyhouseError | None:
        try:
            self._cursor.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return translate_commit_error(error, self._path)
        return None

    def erase_free_pages(self, _: object) -> None:
        """Rewrite the file without its free pages, and truncate the WAL. On the thread.

        The file's copy is made on disk: it may be larger than memory.
        """
        execute = self._cursor.execute
        execute("PRAGMA temp_store = FILE")
        try:
            until_available(lambda: execute("VACUUM").fetchall())
        finally:
            execute("PRAGMA temp_store = MEMORY")
        until_available(self._truncate_wal)

    def overwrite_deleted(self, _: object) -> None:
        """Overwrite what is deleted from now on with zeros. On the thread."""
        self._cursor.execute("PRAGMA secure_delete = ON").fetchall()

    def truncate_log(self, _: object) -> None:
        """Truncate the WAL, and overwrite deleted content no longer. On the thread."""
        self._cursor.execute("PRAGMA secure_delete = OFF").fetchall()
        until_available(self._truncate_wal)

    def _truncate_wal(self) -> None:
        ((is_busy, _, _),) = self._cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if is_busy:
            raise apsw.BusyError("a reader still needs the write-ahead log")

    def _roll_back(self) -> None:
        """After an error that spoils the transaction, SQLite has often done so itself."""
        if self.connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _close_files(self) -> None:
        """The last connection to close checkpoints the WAL."""
        self.connection.close()
