"""The statements of one write transaction: batches, sweeping, pruning. Knows no threads or groups.

Everything that can reject a batch comes before its first write, so that a rejection has nothing to
undo and does not affect the other batches of the transaction.

The puts and the deletes of all batches are gathered and written by one statement each, at the end
or before something reads or writes one of their rows: half the cost of a small batch is the call
into SQLite. No key is in both, so their order does not matter. If SQLite rejects a gathered value
it does not report which: `RejectedValueError` is raised, and the transaction runs again with
`gathers=False`, each batch on its own.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import apsw

from keyhouse.engine import Add, Batch, Check, Put, sum_of
from keyhouse.engines.batch_plan import ids_expired_at
from keyhouse.engines.sqlite.change_log import encode
from keyhouse.engines.sqlite.sql import Statements

REJECTED_VALUE = (
    ArithmeticError,
    TypeError,
    ValueError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
)
"""Errors of SQLite or the driver for a value they cannot store: one batch is to blame."""

PutRow = tuple[str | bytes | int | None, ...]

_CHECKS_UNSHARED: Final = 2
"""A batch with so few checks usually checks rows that no other one checks."""


class RejectedValueError(Exception):
    """One of several batches has a value that SQLite cannot store."""


class SqliteTransaction:
    """One write transaction at the time `now`, from after BEGIN to before COMMIT."""

    __slots__ = (
        "_checked",
        "_cursor",
        "_deletes",
        "_gathered",
        "_gathers",
        "_log",
        "_sql",
        "_stamp",
        "_summed",
        "_touched",
        "now",
        "revision",
        "wrote",
    )

    def __init__(
        self, cursor: apsw.Cursor, sql: Statements, now: int, *, gathers: bool = True
    ) -> None:
        self._cursor = cursor
        self._sql = sql
        self._gathers = gathers
        self._gathered: list[PutRow] = []
        self._deletes: list[tuple[str, str]] = []
        self._touched: dict[str, set[str]] = {}
        self._checked: dict[str, dict[str, int | None]] = {}
        """Revisions of rows that were checked and not written since: batches of one group often
        check the same rows."""
        self._summed: dict[str, dict[str, Put]] = {}
        """Counters as the last batch left them: batches of one group often add to the same one."""
        self._log: list[tuple[int, str, bytes | str]] = []
        self._stamp = None if sql.stamp is None else cursor.execute(sql.stamp, (now,)).get
        self.now = now
        self.revision: int = cursor.execute(sql.head).get or 0
        self.wrote = False

    def apply(self, space: str, batch: Batch, size: int) -> int | None:
        """Apply one batch and return its revision, or None if a check fails.

        `size`: bytes of its values.
        """
        if batch.id is not None and (revision := self._applied(space, batch.id)) is not None:
            return revision
        if batch.checks and not self._checks_hold(space, batch.checks):
            return None
        puts, deletes = batch.puts, batch.deletes
        if batch.adds:
            sums = self._sums(space, batch.adds)
            revision = self._write(space, (*puts, *sums), deletes, size)
            self._summed.setdefault(space, {}).update({put.key: put for put in sums})
        elif puts or deletes:
            revision = self._write(space, puts, deletes, size)
        else:
            return self.revision
        if batch.id is not None:
            self._cursor.execute(self._sql.put_id, (space, batch.id, revision, self.now))
        return revision

    def sweep(self, limit: int) -> int:
        """Delete up to `limit` expired rows, as one change of each space they were in.

        Few statements, however many rows: on a thread, Python's lock must be won back after each.
        Gathered puts are written first: a row that was put again has not expired.
        """
        self.flush()  # an expired row is absent for checks, before and after
        count = 0
        for space, keys, rows in self._cursor.execute(self._sql.expired, (self.now, limit)):
            self._record(space, keys)
            count += rows
        if count:
            self._cursor.execute(self._sql.delete_expired, (self.now, limit))
        return count

    def prune(self, last: int, limit: int) -> int:
        """Delete up to `limit` changes up to revision `last`, and as many expired batch ids.

        Return the number of deleted rows.
        """
        before = self._cursor.connection.total_changes()
        self._cursor.execute(self._sql.prune, (last, limit))
        self._cursor.execute(self._sql.delete_ids, (ids_expired_at(self.now), limit))
        count = self._cursor.connection.total_changes() - before
        self.wrote = self.wrote or count > 0
        return count

    def forget(self, space: str, limit: int, kept: str | None) -> int:
        """Erase up to `limit` rows of each table of a space, but not the row `kept`; return their
        number."""
        self._checked.pop(space, None)
        self._summed.pop(space, None)
        before = self._cursor.connection.total_changes()
        rows, *others = self._sql.forget
        self._cursor.execute(rows, (space, kept, limit))
        for statement in others:
            self._cursor.execute(statement, (space, limit))
        count = self._cursor.connection.total_changes() - before
        self.wrote = self.wrote or count > 0
        return count

    def finish(self) -> None:
        """Write the gathered puts and the log. Nothing may be applied after it."""
        self.flush()
        if self._log:
            self._cursor.executemany(self._sql.log, self._log)

    def _applied(self, space: str, batch_id: str) -> int | None:
        revision: int | None = self._cursor.execute(
            self._sql.applied, (space, batch_id, ids_expired_at(self.now))
        ).get
        return revision

    def _checks_hold(self, space: str, checks: Sequence[Check]) -> bool:
        execute, state, now = self._cursor.execute, self._sql.state, self.now
        touched = self._touched.get(space, ())
        known = self._checked.setdefault(space, {}) if len(checks) > _CHECKS_UNSHARED else {}
        for check in checks:
            key = check.key
            if key in known:
                current = known[key]
            else:
                if key in touched:
                    self.flush()
                current = None
                for revision, expires in execute(state, (space, key)):
                    current = revision if expires is None or expires > now else None
                known[key] = current
            if current != check.revision:
                return False
        return True

    def _sums(self, space: str, adds: Iterable[Add]) -> list[Put]:
        summed, touched = self._summed.get(space, {}), self._touched.get(space, ())
        if any([add.key in touched and add.key not in summed for add in adds]):
            self.flush()
        sums = []
        for add in adds:
            value, kept_expires = None, None
            if add.key in summed:
                value, kept_expires = summed[add.key].value, summed[add.key].expires
            else:
                for stored, _, expires in self._cursor.execute(self._sql.read, (space, add.key)):
                    if expires is None or expires > self.now:
                        value, kept_expires = stored, expires
            sums.append(Put(add.key, sum_of(add.key, value, add.by), kept_expires))
        return sums

    def _write(self, space: str, puts: Sequence[Put], deletes: tuple[str, ...], size: int) -> int:
        """Write rows as one commit, and return its revision."""
        revision, stamp = self.revision + 1, self._stamp
        rows: list[PutRow] = []
        keys = []
        for put in puts:
            key = put.key
            keys.append(key)
            rows.append(
                (space, key, revision, put.expires, put.value)
                if stamp is None
                else (space, key, revision, put.expires, put.value, stamp)
            )
        if self._checked or self._summed:
            self._forget_known(space, (*keys, *deletes))
        inline = self._sql.inline_bytes_max
        if not self._gathers or (size > inline and any([len(put.value) > inline for put in puts])):
            self.flush()
            self._write_at_once(space, rows, deletes)
        else:
            self._gather(space, keys, rows, deletes)
        self._record(space, encode((keys, deletes)))
        return revision

    def _forget_known(self, space: str, written: Iterable[str]) -> None:
        for known in (self._checked.get(space), self._summed.get(space)):
            if known:
                for key in written:
                    if key in known:
                        del known[key]

    def _gather(
        self, space: str, keys: list[str], rows: list[PutRow], deletes: tuple[str, ...]
    ) -> None:
        touched = self._touched.get(space)
        if touched is None:
            touched = self._touched[space] = set()
        elif (deletes or self._deletes) and not (
            touched.isdisjoint(keys) and touched.isdisjoint(deletes)
        ):
            self.flush()
            touched = self._touched[space] = set()
        self._gathered += rows
        touched.update(keys)
        if deletes:
            self._deletes += [(space, key) for key in deletes]
            touched.update(deletes)

    def _write_at_once(self, space: str, rows: list[PutRow], deletes: tuple[str, ...]) -> None:
        if rows:
            self._cursor.executemany(self._sql.put, [self._split(row) for row in rows])
        if deletes:
            self._cursor.executemany(self._sql.delete, [(space, key) for key in deletes])

    def flush(self) -> None:
        """Write what is gathered. `put_small` skips rows with a large value, uncounted."""
        rows, deletes = self._gathered, self._deletes
        if not rows and not deletes:
            return
        self._gathered, self._deletes, self._touched = [], [], {}
        changes = self._cursor.connection.total_changes
        try:
            if deletes:
                self._cursor.executemany(self._sql.delete, deletes)
            before = changes()
            if rows:
                self._cursor.executemany(self._sql.put_small, rows)
            if changes() - before < len(rows):
                self._cursor.executemany(self._sql.put, [self._split(row) for row in rows])
        except REJECTED_VALUE as error:
            raise RejectedValueError from error

    def _split(self, row: PutRow) -> PutRow:
        """Return the bindings of `put`, with a large value moved to its own table."""
        space, key, revision, expires, value, *stamp = row
        if len(value) <= self._sql.inline_bytes_max:  # type: ignore[arg-type]  # a value is bytes
            return (*row, *self._sql.no_large)
        return (space, key, revision, expires, None, *stamp, self._large(value))  # type: ignore[arg-type]

    def _large(self, value: bytes) -> int:
        self._cursor.execute(self._sql.put_large, (value,))
        return self._cursor.connection.last_insert_rowid()

    def _record(self, space: str, keys: bytes | str) -> None:
        self.revision += 1
        self.wrote = True
        self._log.append((self.revision, space, keys))
