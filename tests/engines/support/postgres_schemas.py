"""PostgreSQL engines on a private schema, with an operator's connection."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.sql.layout import Layout
from keyhouse.testing.servers.postgres import postgres_server
from tests.support.engine_openers import postgres_schema

ALL = Span()
LAYOUT = Layout.named("keyhouse")


@asynccontextmanager
async def opened(url: str | None = None) -> AsyncIterator[PostgresEngine]:
    engine = PostgresEngine.open(url or await postgres_schema())
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def operator(url: str) -> AsyncIterator[Any]:
    """Open a connection beside the engine's."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def put(engine: Engine, *keys: str, value: bytes = b"1", space: str = "s") -> int | None:
    return await engine.commit(space, Batch(puts=tuple(Put(key, value) for key in keys)))


async def database(*settings: str, create: str = "") -> str:
    """Create a database with these settings and return its URL."""
    name = f"d{secrets.token_hex(6)}"
    async with operator(postgres_server().url) as connection:
        await connection.execute(f"CREATE DATABASE {name} {create}")
        for setting in settings:
            await connection.execute(f"ALTER DATABASE {name} SET {setting}")
    return postgres_server().url.replace("/postgres?", f"/{name}?")


async def take(url: str, *, leave: int) -> list[asyncpg.Connection]:
    """Open connections as another program would, until the server has only `leave` left."""
    taken: list[asyncpg.Connection] = []
    try:
        while True:
            taken.append(await asyncpg.connect(url))
    except asyncpg.TooManyConnectionsError:
        for connection in taken[:leave]:
            await connection.close()
    return taken[leave:]
