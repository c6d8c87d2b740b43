"""The one connection that writes, in groups: see `keyhouse.engines.commit_queue`.

The statements of a group run on the event loop's thread, where they touch cached pages only; COMMIT, which writes and
syncs the WAL and sometimes checkpoints it, runs on the writer's own thread. To run the statements there too was measured,
and lost: the driver lets go of Python's lock at every statement, and has to win it back from a busy loop. Only one of the
two threads uses the connection at any moment.
"""

from collections.abc import Callable
from typing import TypeVar

import apsw

from keyhouse.clock import Clock
from keyhouse.engines.commit_queue import CommitQueue, Group, PendingCommit, Wait
from keyhouse.engines.sqlite.connections import until_available
from keyhouse.engines.sqlite.error_map import translate, translate_commit_error
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.engines.sqlite.transaction import POISON, SpoiledError, Transaction
from keyhouse.errors import ClosedError, KeyhouseError

Answer = TypeVar("Answer")


class SqliteJob(PendingCommit[Answer]):
    """What is no refusal and no poison is the transaction's own error."""

    REFUSALS = (KeyhouseError,)
    POISON = POISON

    __slots__ = ()


class Writer(CommitQueue):
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

    def _revive(self) -> None:
        """A transaction that neither ended nor could be rolled back: every group behind it would fail."""
        self._roll_back()

    def _prepare(self, group: Group) -> bool:
        try:
            return self._prepared(group)
        except apsw.BusyError as error:
            raise Wait from error

    def _prepared(self, group: Group) -> bool:
        gathers = True
        while True:
            self._cursor.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(
                    self._cursor, self._sql, self._clock.now(), gathers=gathers
                )
                sound = self._run(group, transaction)
            except SpoiledError:
                self._roll_back()
                gathers = False
                continue
            except BaseException:
                self._roll_back()
                raise
            if sound and transaction.wrote:
                return True
            self._roll_back()
            if sound:
                return False

    def _run(self, group: Group, transaction: Transaction) -> bool:
        for job in group:
            if not job.poisoned:
                job.run(transaction)
                if job.poisoned:
                    return False
        transaction.finish()
        return True

    def _whole(self, group: Group) -> KeyhouseError | None:
        try:
            wrote = until_available(lambda: self._prepared(group))
        except Exception as error:
            return translate(error, self._path)
        return self._commit(group) if wrote else None

    def _commit(self, group: Group) -> KeyhouseError | None:
        try:
            self._cursor.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return translate_commit_error(error, self._path)
        return None

    def _roll_back(self) -> None:
        """SQLite has often done so itself, after an error that spoils the transaction."""
        if self.connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _release(self) -> None:
        """The last connection to go checkpoints the WAL."""
        self.connection.close()
