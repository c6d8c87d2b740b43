"""Opening the engine on PostgreSQL: tables, privileges and layouts. See also `test_engine`."""

import asyncio

import asyncpg
import pytest

from keyhouse import ManualClock, open_engine
from keyhouse.engine import Add, Batch, Put, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.sql import migrate
from keyhouse.errors import UnavailableError, UsageError
from tests.engines.support.open_errors import open_error
from tests.support.engine_openers import postgres_schema


def test_missing_tables_are_created_only_with_create() -> None:
    url = asyncio.run(postgres_schema())
    error = open_error(f"{url}&layout=books", create=False)
    assert isinstance(error, UsageError)
    assert (
        error.sentence == "The tables do not exist; create them with: keyhouse tables upgrade URL"
    )
    assert error.fields["tables"] == "books_rows"

    async def made() -> None:
        await (await open_engine(f"{url}&layout=books")).close()
        await (await open_engine(f"{url}&layout=books", create=False)).close()

    asyncio.run(made())


async def role(url: str, name: str, *grants: str) -> str:
    """Create a user with exactly these privileges and return the URL."""
    connection = await asyncpg.connect(url)
    schema = await connection.fetchval("SELECT current_schema")
    await connection.execute(f"CREATE ROLE {schema}_{name} LOGIN")
    for grant in (f"USAGE ON SCHEMA {schema}", *grants):
        await connection.execute(f"GRANT {grant.format(schema=schema)} TO {schema}_{name}")
    await connection.close()
    return url.replace("//postgres@", f"//{schema}_{name}@")


def test_a_user_without_create_privilege_gets_a_clear_error() -> None:
    async def scenario() -> str:
        return await role(await postgres_schema(), "guest")

    error = open_error(asyncio.run(scenario()))
    assert isinstance(error, UnavailableError)
    assert (
        error.sentence
        == "The user lacks a privilege in the database; grant it, or use another user."
    )


@pytest.mark.parametrize("layout", ["books", "rosey"])
def test_the_documented_privileges_are_sufficient(layout: str) -> None:
    """For commits, counters, reads, scans, watches, sweeps and pruning, without the right to create
    tables."""

    async def scenario() -> None:
        owner = f"{await postgres_schema()}&layout={layout}"
        await asyncio.to_thread(migrate.upgrade, owner)
        clock = ManualClock()
        user = await role(
            owner.partition("&layout")[0],
            "user",
            "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema}",
        )
        engine = PostgresEngine.open(
            f"{user}&layout={layout}", clock=clock, changes_kept=1, create=False
        )
        watch = engine.watch("s", Span(""), since=0)
        try:
            puts = (Put("a", b"1", clock.now() + 1_000), Put("b", b"2"))
            assert await engine.commit("s", Batch(puts=puts, adds=(Add("c", 1),), id="one")) == 1
            assert (await anext(watch)).key == "a"
            assert [row and row.value for row in await engine.read("s", ["a", "b", "c"])] == [
                b"1",
                b"2",
                b"1",
            ]
            clock.advance(seconds=90_000)
            assert await engine.sweep(limit=10) == 1
            assert [row.key for row in (await engine.scan("s", Span(""), limit=10)).rows] == [
                "b",
                "c",
            ]
            assert [space async for space in engine.spaces()] == ["s"]
        finally:
            await watch.aclose()
            await engine.close()

    asyncio.run(scenario())


def test_a_layout_with_truncated_names_is_rejected_and_the_longest_names_stay_distinct() -> None:
    async def kept_apart(url: str) -> None:
        engines = [await open_engine(f"{url}&layout={'n' * 49}{end}") for end in "ab"]
        for number, engine in enumerate(engines):
            await engine.commit("s", Batch(puts=(Put("k", str(number).encode()),)))
        rows = [(await engine.read("s", ["k"]))[0] for engine in engines]
        assert [row and row.value for row in rows] == [b"0", b"1"]
        assert [await engine.sweep(limit=10) for engine in engines] == [0, 0]
        for engine in engines:
            await engine.close()

    url = asyncio.run(postgres_schema())
    for name in ("n" * 51, "%C3%A9" * 26, "a%00b"):
        error = open_error(f"{url}&layout={name}")
        assert isinstance(error, UsageError) and error.fields["limit"] == 63
    asyncio.run(kept_apart(url))
