"""The connection that reads, on the event loop's thread.

No read transaction outlives the call that opened it: an open one stops checkpoints, and the WAL
grows.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw

from keyhouse.clock import Clock
from keyhouse.engine import Row
from keyhouse.engines.sqlite.error_map import translate
from keyhouse.engines.sqlite.sql import READ_TOGETHER_MAX, Statements


class Reader:
    __slots__ = ("_clock", "_execute", "_path", "_read", "_sql", "connection")

    def __init__(self, connection: apsw.Connection, sql: Statements, clock: Clock) -> None:
        self.connection = connection
        self._path = connection.filename
        self._sql = sql
        self._read = sql.read
        self._clock = clock
        # One cursor for all calls, each of which exhausts it: a new one costs a quarter more.
        self._execute = connection.cursor().execute

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        """Return the rows, None where absent. Taking the file's lock costs as much as finding a
        row, so it is taken once for all of them."""
        try:
            if len(keys) == 1:  # what `_row` does, without a further call
                (key,) = keys
                row = self._execute(self._read, (space, key)).get
                if row is None:
                    return [None]
                value, revision, expires = row
                if expires is not None and expires <= self._clock.now():
                    return [None]
                return [Row(key, value, revision, expires)]
            if bytes_max is None and len(keys) <= READ_TOGETHER_MAX:
                return self._together(space, keys)
            self._execute("BEGIN")
            try:
                rows = (
                    [self._row(space, key) for key in keys]
                    if bytes_max is None
                    else self._fitting_rows(space, keys, bytes_max)
                )
                self._execute("COMMIT")
                return rows
            finally:
                self._roll_back()
        except apsw.Error as error:
            raise translate(error, self._path) from error

    def _row(self, space: str, key: str) -> Row | None:
        row = None
        for value, revision, expires in self._execute(self._sql.read, (space, key)):
            if expires is None or expires > self._clock.now():
                row = Row(key, value, revision, expires)
        return row

    def _fitting_rows(self, space: str, keys: Sequence[str], bytes_max: int) -> list[Row | None]:
        rows: list[Row | None] = []
        left = bytes_max
        for key in keys:
            row = self._row(space, key)
            if row is not None and (left := left - len(row.value)) < 0 and rows:
                break
            rows.append(row)
        return rows

    def _together(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        rows: list[Row | None] = [None] * len(keys)
        if rows:
            sql = self._sql.read_some[len(keys)]
            for which, value, revision, expires in self._execute(sql, (space, *keys)):
                if expires is None or expires > self._clock.now():
                    rows[which] = Row(keys[which], value, revision, expires)
        return rows

    def stored(self, space: str, key: str) -> Row | None:
        """Return the row as stored, expired or not."""
        for value, revision, expires in self.all(self._sql.read, (space, key)):
            return Row(key, value, revision, expires)
        return None

    def revision(self) -> int:
        """Return the newest revision of the file; 0 before the first commit."""
        newest: int | None = self.all(self._sql.head)[0][0]
        return newest or 0

    def spaces(self) -> Iterator[str]:
        least = ""
        while rows := self.all(self._sql.next_space, (least, self._clock.now())):
            space: str = rows[0][0]
            yield space
            least = space + "\0"

    def all(self, sql: str, bindings: Sequence[str | bytes | int] = ()) -> list[Any]:
        """Return all rows of one statement, or of several between BEGIN and COMMIT."""
        try:
            return self._execute(sql, bindings).fetchall()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.Error):
                raise translate(error, self._path) from error
            raise

    def fitting(
        self, sql: str, bindings: Sequence[str | bytes | int], bytes_max: int
    ) -> tuple[list[Any], bool]:
        """Return the results of a scan: its revision, and the rows that fit in `bytes_max`, one at
        least; and whether others were left out. They are not read."""
        cursor = self.connection.cursor()
        left = bytes_max
        try:
            results = cursor.execute(sql, bindings)
            rows = [next(results)]
            for row in results:
                left -= len(row[1])
                if left < 0 and len(rows) > 1:
                    return rows, True
                rows.append(row)
            return rows, False
        except apsw.Error as error:
            raise translate(error, self._path) from error
        finally:
            cursor.close(True)
            self._roll_back()

    def _roll_back(self) -> None:
        """End a transaction that did not reach its COMMIT."""
        with suppress(apsw.Error):
            if self.connection.in_transaction:
                self._execute("ROLLBACK")
