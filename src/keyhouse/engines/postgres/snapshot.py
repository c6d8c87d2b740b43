"""Snapshots: one connection in one read-only REPEATABLE READ transaction.

Also builds the arguments and results of scans, which the engine shares.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import DRIVER, translate
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.server import close_quietly
from keyhouse.engines.postgres.sql import Statements

SPACES_ROWS: Final = 100
"""Spaces per call."""

_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Snapshot:
    """Implements ReadView."""

    def __init__(self, connection: Connection, server: str, sql: Statements, clock: Clock) -> None:
        self._connection = connection
        self._server = server
        self._sql = sql
        self.clock = clock

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        sql = self._sql.scans[False, False, span.stop is not None]
        arguments = scan_arguments(space, span, self.clock.now(), limit)
        return page_of(await self._await_call(self._connection.fetch(sql, *arguments)), limit)

    async def spaces(self) -> AsyncIterator[str]:
        after = ""
        while spaces := await self._await_call(
            self._connection.fetch(self._sql.spaces, after, self.clock.now(), SPACES_ROWS)
        ):
            for (after,) in spaces:
                yield after

    async def start(self) -> None:
        await self._await_call(self._connection.execute(_BEGIN))
        # The first statement takes the snapshot.
        await self._await_call(self._connection.fetch(self._sql.spaces, "", 0, 1))

    async def _await_call(self, call: Awaitable[Any]) -> Any:
        """Await the call without retry: a lost connection loses the snapshot."""
        try:
            return await call
        except DRIVER as error:
            raise translate(error, self._server) from error


@asynccontextmanager
async def snapshot(pool: Pool, sql: Statements, clock: Clock) -> AsyncIterator[Snapshot]:
    """Open a snapshot on another connection: a backup takes long, and others read meanwhile."""
    connection = await pool.open_another()
    try:
        opened = Snapshot(connection, pool.server_name, sql, clock)
        await opened.start()
        yield opened
    finally:
        await close_quietly(connection)


def scan_arguments(space: str, span: Span, now: int, limit: int) -> tuple[object, ...]:
    stop = () if span.stop is None else (_without_null(span.stop),)
    return (space, _without_null(span.start), now, limit + 1, *stop)


def page_of(answer: list[Any], limit: int) -> Page:
    head, *records = answer
    rows = [
        Row(key, value.encode(), revision, expires)
        for key, value, revision, expires in records[:limit]
    ]
    return Page(rows, len(records) > limit, head["revision"])


def _without_null(bound: str) -> str:
    """Return an equivalent bound without U+0000: no key contains it, and PostgreSQL rejects it."""
    text, null, _ = bound.partition("\0")
    return text + "\x01" if null else bound
