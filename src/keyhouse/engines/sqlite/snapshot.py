"""A snapshot of the file: a separate connection, in one read transaction.

While it is open, no checkpoint passes it, and the WAL grows with every commit.
"""

from collections.abc import AsyncIterator
from itertools import starmap

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.sqlite.connections import open_reader
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.sql import Statements, stop_of


class Snapshot:
    """Implements ReadView."""

    def __init__(self, path: str, sql: Statements, clock: Clock) -> None:
        self.clock = clock
        self._sql = sql
        self._reader = Reader(open_reader(path), sql, clock)
        self._reader.all("BEGIN")
        self._revision = self._reader.revision()  # the first read starts the transaction

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        bindings = (space, span.start, stop_of(span.stop), self.clock.now(), limit + 1)
        rows = self._reader.all(self._sql.rows_of_span, bindings)
        return Page(list(starmap(Row, rows[:limit])), len(rows) > limit, self._revision)

    async def spaces(self) -> AsyncIterator[str]:
        for space in self._reader.spaces():
            yield space

    def close(self) -> None:
        self._reader.connection.close()
