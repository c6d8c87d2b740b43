"""The connections of a process, and a server that has no more."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from keyhouse import open_engine
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.postgres.server import CONNECTIONS_DEFAULT
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.testing.conformance.harness import leave
from keyhouse.testing.servers.postgres import PostgresServer
from tests.engines.support.postgres_schemas import ALL, database, operator, put, take
from tests.support.polling import loop_turns, until

SYSTEMS = ("rosey", "streamkit", "audiobooks", "playlist", "history", "box")


@asynccontextmanager
async def engines(
    url: str, *, layouts: tuple[str, ...] = SYSTEMS
) -> AsyncIterator[list[PostgresEngine]]:
    """Open an engine for each system, as a service does."""
    async with AsyncExitStack() as stack:
        opened = []
        for name in layouts:
            engine = await stack.enter_async_context(open_engine(f"{url}&layout={name}"))
            assert isinstance(engine, PostgresEngine)
            opened.append(engine)
        yield opened


async def load(opened: list[PostgresEngine]) -> None:
    """Read and write in all engines at once, each in many spaces."""

    async def use(engine: PostgresEngine, number: int) -> None:
        for turn in range(2):
            assert await put(engine, f"k{turn}", space=f"s{number}") is not None
            assert await engine.read(f"s{number}", [f"k{turn}"]) != [None]
            await engine.scan(f"s{number}", ALL, limit=10)

    await asyncio.gather(*(use(engine, number) for engine in opened for number in range(20)))


async def count(url: str) -> int:
    """Return how many connections others have to the database."""
    async with operator(url) as connection:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return found


def test_six_systems_of_a_process_share_their_connections() -> None:
    """Each had its own: 72 of the server's 100 for one busy process."""

    async def scenario() -> None:
        url = await database()
        async with engines(url) as opened:
            await load(opened)
            assert await count(url) <= CONNECTIONS_DEFAULT
        assert await count(url) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("connections", [3, 4, 12])
def test_a_process_opens_as_many_connections_as_the_url_allows(connections: int) -> None:
    """Each watched system had one more, to listen."""

    async def scenario() -> None:
        url = await database()
        async with engines(f"{url}&connections={connections}") as opened, AsyncExitStack() as stack:
            for engine in opened:
                watch = engine.watch("s0", ALL, since=0)
                stack.push_async_callback(leave, watch)
                await put(engine, "a", space="s0")
                assert (await anext(watch)).key == "a"
            await load(opened)
            await until(lambda: all(engine.feed.listening for engine in opened))
            assert await count(url) <= connections
            if connections < CONNECTIONS_DEFAULT:
                assert await count(url) == connections

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["", "2", "0", "-3", "many", "2.5", "9999", "4&connections=5"])
def test_an_invalid_number_of_connections_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="connections=NUMBER"):
        PostgresEngine.open(f"postgresql://localhost/x?connections={text}")


def test_connections_that_nobody_needs_are_closed() -> None:
    async def scenario() -> None:
        url = await database()
        async with engines(url) as opened:
            await load(opened)
            before = await count(url)
            assert before > 4
            one = opened[0]
            pools = (one.reads.shared, one.writes.shared)
            for pool in pools:
                pool.trim()  # of the time of the load
            assert await count(url) == before
            await put(one, "a")  # one is needed
            async with asyncio.timeout(30):
                while await count(url) != 2:  # one for reads, one for writes
                    for pool in pools:
                        pool.trim()  # tasks of the engines may have needed another one
            await load(opened)

    asyncio.run(scenario())


def test_an_engine_that_is_closed_leaves_the_connections_to_the_others() -> None:
    async def scenario() -> None:
        url = await database()
        async with engines(url) as (first, *others):
            await load([first, *others])
            await first.close()
            await load(others)
            async with engines(url, layouts=("another",)) as added:
                await load([*others, *added])

    asyncio.run(scenario())


def test_backups_take_no_connection_from_readers() -> None:
    async def scenario() -> None:
        url = await database()
        async with engines(f"{url}&connections=3") as opened, AsyncExitStack() as stack:
            await load(opened)
            for engine in opened:
                view = await stack.enter_async_context(engine.snapshot())
                assert (await view.scan("s0", ALL, limit=1)).rows
            async with asyncio.timeout(30):
                await load(opened)

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def small_server() -> Iterator[PostgresServer]:
    server = PostgresServer(max_connections="8", superuser_reserved_connections="0")
    yield server
    server.close()


def test_a_process_works_with_the_connections_it_has_if_the_server_has_no_more(
    small_server: PostgresServer,
) -> None:
    """With 40 connections for two processes, a quarter of the requests failed."""

    async def scenario() -> None:
        async with engines(small_server.url) as opened:
            one = opened[0]
            await put(one, "a")
            await one.read("s", ["a"])
            taken = await take(small_server.url, leave=0)
            assert taken
            await load(opened[:3])
            for connection in taken:
                await connection.close()
            for pool in (one.reads.shared, one.writes.shared):
                pool.grow()
            await load(opened)

    asyncio.run(scenario())


def test_a_process_without_any_connection_waits_then_says_that_the_server_has_no_more(
    small_server: PostgresServer,
) -> None:
    """It failed at once, although others return their connections soon."""

    async def scenario() -> None:
        url = small_server.url
        async with engines(url, layouts=("first",)):
            pass  # creates the tables
        engine = PostgresEngine.open(f"{url}&layout=first")
        taken = await take(url, leave=1)
        try:
            assert await engine.read("s", ["a"]) == [None]
            for result in await asyncio.gather(
                *(put(engine, f"k{number}") for number in range(3)),
                engine.connect(),
                return_exceptions=True,
            ):
                assert isinstance(result, UnavailableError) and "out of connections" in str(result)
            waiting = [asyncio.ensure_future(put(engine, f"k{number}")) for number in range(3)]
            await loop_turns(20)
            await taken.pop().close()
            assert None not in await asyncio.gather(*waiting)
            await engine.connect()
        finally:
            for connection in taken:
                await connection.close()
            await engine.close()

    asyncio.run(scenario())
