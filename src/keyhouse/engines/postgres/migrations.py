"""Table migrations for callers outside an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from keyhouse.engines.postgres import tables
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.pool import close_quietly
from keyhouse.engines.postgres.server import Server
from keyhouse.engines.sql.layout import Layout

Result = TypeVar("Result")


class PostgresMigrations:
    def __init__(self, url: str, layout: Layout) -> None:
        self._server = Server(url, layout)
        self._layout = layout

    def version(self) -> str | None:
        return self._run(lambda connection: tables.version(connection, self._layout))

    def upgrade(self, to: str) -> None:
        self._run(lambda connection: tables.upgrade(connection, self._layout, to))

    def downgrade(self, to: str) -> None:
        self._run(lambda connection: tables.downgrade(connection, self._layout, to))

    def _run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            connection = await self._server.reach()
            try:
                return await self._server.translating(work(connection))
            finally:
                await close_quietly(connection)

        return asyncio.run(run())
