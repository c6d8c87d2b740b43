"""The tables as of one moment: one connection, in one transaction that reads only. The server keeps what others delete.

Here also is how a scan is asked and answered, which is the same for the newest moment and for one that is held.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import DRIVER, translate
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements

SPACES_ROWS: Final = 100
"""Spaces that are named by one call."""

_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Snapshot:
    """Is a View."""

    def __init__(self, connection: Connection, server: str, sql: Statements, clock: Clock) -> None:
        self._connection = connection
        self._server = server
        self._sql = sql
        self._clock = clock

    @property
    def clock(self) -> Clock:
        return self._clock

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        sql = self._sql.scans[False, False, span.stop is not None]
        arguments = scan_arguments(space, span, self._clock.now(), limit)
        return page_of(await self._answer(self._connection.fetch(sql, *arguments)), limit)

    async def spaces(self) -> AsyncIterator[str]:
        after = ""
        while found := await self._answer(
            self._connection.fetch(self._sql.spaces, after, self._clock.now(), SPACES_ROWS)
        ):
            for (after,) in found:
                yield after

    async def begin(self) -> None:
        await self._answer(self._connection.execute(_BEGIN))
        await self._answer(
            self._connection.fetch(self._sql.spaces, "", 0, 1)
        )  # the snapshot is of the first statement

    async def end(self) -> bool:
        """Whether the connection can be used again. One that was lost after all was read is nobody's trouble."""
        try:
            await self._connection.execute("ROLLBACK")
        except DRIVER:
            return False
        return True

    async def _answer(self, call: Awaitable[Any]) -> Any:
        """A connection that is lost takes the moment with it: nothing is asked a second time."""
        try:
            return await call
        except DRIVER as error:
            raise translate(error, self._server) from error


@asynccontextmanager
async def snapshot(pool: Pool, sql: Statements, clock: Clock) -> AsyncIterator[Snapshot]:
    connection = await pool.acquire()
    try:
        held = Snapshot(connection, pool.server_name, sql, clock)
        await held.begin()
        yield held
        kept = await held.end()
    except BaseException:
        pool.discard(connection)
        raise
    (pool.release if kept else pool.discard)(connection)


def scan_arguments(space: str, span: Span, now: int, limit: int) -> tuple[object, ...]:
    stop = () if span.stop is None else (_without_null(span.stop),)
    return (space, _without_null(span.start), now, limit + 1, *stop)


def page_of(answer: list[Any], limit: int) -> Page:
    head, *found = answer
    rows = [
        Row(key, value.encode(), revision, expires)
        for key, value, revision, expires in found[:limit]
    ]
    return Page(rows, len(found) > limit, head["revision"])


def _without_null(bound: str) -> str:
    """The end of a span without U+0000, which no key holds and PostgreSQL does not take: it cuts between the same keys."""
    text, null, _ = bound.partition("\0")
    return text + "\x01" if null else bound
