"""Poolers between an engine and PostgreSQL, and products in its place."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from keyhouse import open_engine
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.testing.conformance.harness import leave
from keyhouse.testing.servers.postgres import postgres_server
from tests.engines.support.open_errors import open_error
from tests.engines.support.postgres_poolers import (
    PGBOUNCER,
    SharingPooler,
    pgbouncer,
    url_through,
)
from tests.engines.support.postgres_schemas import ALL, database, operator, put
from tests.support.polling import until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a socket: its path must be short."""
    with tempfile.TemporaryDirectory(prefix="pool", dir="/tmp") as name:
        yield Path(name)


async def new_database() -> str:
    return urlsplit(await database()).path.removeprefix("/")


def test_a_pooler_that_shares_server_connections_is_rejected(folder: Path) -> None:
    """Session settings and LISTEN would be lost."""

    async def scenario() -> None:
        name = await new_database()
        async with SharingPooler(postgres_server().folder, name).running(folder):
            with pytest.raises(UsageError, match="pool_mode = session"):
                await open_engine(url_through(folder, name))

    asyncio.run(scenario())


needs_pgbouncer = pytest.mark.skipif(
    PGBOUNCER is None, reason="pgbouncer is not installed: no package index of Python has it"
)


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_pgbouncer_is_rejected_unless_it_pools_sessions(folder: Path, mode: str) -> None:
    async def scenario() -> None:
        url = url_through(folder, await new_database())
        with pytest.raises(UsageError, match="pool_mode = session"):
            await until(lambda: open_engine(url), retry=UnavailableError)

    with pgbouncer(folder, postgres_server().folder, mode):
        asyncio.run(scenario())


@needs_pgbouncer
def test_the_engine_works_through_pgbouncer_in_session_mode(folder: Path) -> None:
    """It rejected the settings that the engine sent as it connected."""

    async def scenario() -> None:
        url = url_through(folder, await new_database())
        writer = await until(lambda: open_engine(url), retry=UnavailableError)
        watcher = await open_engine(f"{url}&connections=4")
        assert isinstance(watcher, PostgresEngine)
        watch = watcher.watch("s0", ALL, since=0)
        numbers = range(30)
        await asyncio.gather(*(put(writer, "k", space=f"s{number}") for number in numbers))
        assert (await anext(watch)).key == "k"
        await until(lambda: watcher.feed.listening)
        await put(writer, "later", space="s0")
        assert (await anext(watch)).key == "later"
        rows = await asyncio.gather(*(watcher.read(f"s{number}", ["k"]) for number in numbers))
        assert all(row is not None for (row,) in rows)
        assert await writer.sweep(limit=10) == 0
        await leave(watch)
        await watcher.close()
        await writer.close()

    with pgbouncer(folder, postgres_server().folder, "session"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    "version",
    [
        "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/05, go1.23)",
        "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang 17.0.6",
    ],
)
def test_a_product_that_only_speaks_the_protocol_is_rejected(version: str) -> None:
    """CockroachDB has the functions of advisory locks, and they lock nothing."""

    async def imitation() -> str:
        url = await database("search_path = imitation, pg_catalog, public")
        async with operator(url) as connection:
            await connection.execute("CREATE SCHEMA imitation")
            await connection.execute(
                "CREATE FUNCTION imitation.version() RETURNS text LANGUAGE sql"
                f" AS $$ SELECT '{version}' $$"
            )
        return url

    error = open_error(asyncio.run(imitation()))
    assert isinstance(error, UsageError) and "advisory locks" in str(error)
    assert error.fields["version"] == version
