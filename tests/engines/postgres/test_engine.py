"""Specific to PostgreSQL: server settings, tables, and query plans."""

import asyncio
import sys

import pytest

from keyhouse.engine import Row
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.postgres.server import Server
from keyhouse.engines.registry import open_engine
from keyhouse.errors import (
    KeyhouseError,
    NewerError,
    UnavailableError,
    UnreadableError,
    UsageError,
    WatchExpiredError,
)
from keyhouse.testing.conformance.harness import leave, step
from keyhouse.testing.servers.postgres import PostgresServer, postgres_server
from tests.engines.support.postgres_schemas import ALL, LAYOUT, database, opened, operator, put
from tests.support.engine_openers import postgres_schema

# Server requirements


def test_weaker_database_settings_are_overridden_per_connection() -> None:
    async def scenario() -> None:
        url = await database(
            "synchronous_commit = off",
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "plan_cache_mode = 'force_custom_plan'",
        )
        connection = await Server(url, LAYOUT).connect()
        for name, value in (
            ("synchronous_commit", "on"),
            ("transaction_isolation", "read committed"),
            ("transaction_read_only", "off"),
            ("plan_cache_mode", "force_generic_plan"),
        ):
            assert await connection.fetchval(f"SHOW {name}") == value
        await connection.close(timeout=30)
        async with opened(url) as engine:
            assert await put(engine, "a") == 1

    asyncio.run(scenario())


def test_a_stronger_synchronous_commit_is_kept() -> None:
    async def scenario() -> None:
        connection = await Server(
            await database("synchronous_commit = 'remote_apply'"), LAYOUT
        ).connect()
        assert await connection.fetchval("SHOW synchronous_commit") == "remote_apply"
        await connection.close(timeout=30)

    asyncio.run(scenario())


def test_a_server_without_fsync_is_rejected() -> None:
    server = PostgresServer(fsync="off")

    async def scenario() -> None:
        async with opened(server.url) as engine:
            with pytest.raises(UsageError, match="does not sync its disk"):
                await put(engine, "a")

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_a_database_without_utf_8_is_rejected() -> None:
    async def scenario() -> None:
        url = await database(create="ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        async with opened(url) as engine:
            with pytest.raises(UsageError, match="not UTF-8") as refusal:
                await put(engine, "a")
        assert refusal.value.fields["encoding"] == "LATIN1"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://user:secret@localhost:1/db", "cannot be reached"),
        ("postgresql://user:secret@no-such-host.invalid/db", "cannot be reached"),
        ("postgresql://nobody:secret@/postgres?host={folder}", "rejects the login"),
        ("postgresql://postgres:secret@/nothing?host={folder}", "does not exist"),
    ],
)
def test_connection_errors_name_the_server_without_the_password(url: str, sentence: str) -> None:
    async def scenario() -> None:
        async with opened(url.format(folder=postgres_server().folder)) as engine:
            for call in (
                put(engine, "a"),
                engine.read("s", ["a"]),
                anext(engine.watch("s", ALL)),
                engine.sweep(limit=1),
            ):
                with pytest.raises(UnavailableError, match=sentence) as refusal:
                    await call
                assert "secret" not in str(refusal.value)
                assert refusal.value.fields["server"]

    asyncio.run(scenario())


def test_an_invalid_postgres_url_is_rejected() -> None:
    async def scenario() -> None:
        async with opened("postgresql://localhost:port/db") as engine:
            with pytest.raises(UsageError, match="Invalid PostgreSQL URL"):
                await put(engine, "a")

    asyncio.run(scenario())


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("keyhouse.engines.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"\[postgres\]"):
        asyncio.run(open_engine("postgresql://localhost/db"))


# The tables


def test_tables_can_be_created_concurrently() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        engines = [PostgresEngine.open(url) for _ in range(8)]
        revisions = await asyncio.gather(
            *(put(engine, f"k{number}") for number, engine in enumerate(engines))
        )
        assert sorted(revision or 0 for revision in revisions) == list(range(1, 9))
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "error"), [("0999", NewerError), ("", NewerError)])
def test_tables_of_an_unknown_version_are_rejected_unchanged(
    version: str, error: type[KeyhouseError]
) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine:
            await put(engine, "a")
        async with operator(url) as connection:
            await connection.execute("UPDATE keyhouse_version SET version_num = $1", version)
            async with opened(url) as engine:
                with pytest.raises(error, match="newer Keyhouse"):
                    await put(engine, "b")
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_rows") == 1

    asyncio.run(scenario())


def test_dropped_tables_are_reported() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            await connection.execute("DROP TABLE keyhouse_rows")
            for call in (put(engine, "b"), engine.read("s", ["a"]), engine.scan("s", ALL, limit=1)):
                with pytest.raises(UnreadableError, match="run the migrations"):
                    await call

    asyncio.run(scenario())


def test_values_and_changes_are_stored_as_text() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a", value='{"name": "é", "n": 7}'.encode())
            assert (
                await connection.fetchval("SELECT value FROM keyhouse_rows")
                == '{"name": "é", "n": 7}'
            )
            assert await connection.fetchval("SELECT value::json ->> 'n' FROM keyhouse_rows") == "7"
            row = await connection.fetchrow("SELECT space, revision, keys FROM keyhouse_changes")
            assert tuple(row) == ("s", 1, '[["a"],[]]')

    asyncio.run(scenario())


def test_a_migration_under_running_engines_does_not_break_their_statements() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            await engine.read("s", ["a"])
            await engine.scan("s", ALL, limit=1)
            await connection.execute("ALTER TABLE keyhouse_rows ADD COLUMN note text")
            await connection.execute("ALTER TABLE keyhouse_changes ADD COLUMN note text")
            assert await put(engine, "b") == 2
            assert len((await engine.scan("s", ALL, limit=9)).rows) == 2
            assert await engine.read("s", ["b"]) == [Row("b", b"1", 2)]

    asyncio.run(scenario())


def test_revisions_continue_after_all_changes_are_pruned() -> None:
    """The log is pruned across spaces, and an idle space may lose all of its entries: its revisions
    must not restart."""

    async def scenario() -> None:
        url = await postgres_schema()
        engine = PostgresEngine.open(url, changes_kept=5)
        for number in range(3):
            await put(engine, f"k{number}", space="quiet")
        for number in range(20):
            await put(engine, f"k{number}", space="busy")
        await engine.sweep(limit=1)
        async with operator(url) as connection:
            assert (
                await connection.fetchval(
                    "SELECT count(*) FROM keyhouse_changes WHERE space = 'quiet'"
                )
                == 0
            )
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_changes") == 5
        page = await engine.scan("quiet", ALL, limit=9)
        assert page.revision == 3
        with pytest.raises(WatchExpiredError):
            await anext(engine.watch("quiet", ALL, since=2))
        watch = engine.watch("quiet", ALL, since=page.revision)
        assert await put(engine, "next", space="quiet") == 4
        assert (await step(watch)).key == "next"
        await leave(watch)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("rows", [10, 5_000])
def test_every_statement_uses_an_index_at_any_size(rows: int) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine:
            await put(engine, *(f"k{number:05d}" for number in range(rows)))
            sql = engine.sql
            connection = await Server(url, LAYOUT).connect()
            for statement, arguments in (
                (sql.read, "'{s}', '{k00001}', 1"),
                (sql.scans[False, False, True], "'s', 'k', 1, 10, 'l'"),
                (sql.scans[True, True, False], "'s', 'k', 1, 10"),
                (sql.spaces, "'', 1, 10"),
                (sql.window, "'s', 0, 10, 1000000"),
                (sql.prune, "10, 10"),
                (sql.forget, "10, 10"),
                (
                    "SELECT space FROM keyhouse_rows WHERE expires <= $1 ORDER BY expires LIMIT $2",
                    "1, 10",
                ),
            ):
                await connection.execute(f"PREPARE p AS {statement}")
                plan = "\n".join(
                    line for (line,) in await connection.fetch(f"EXPLAIN EXECUTE p({arguments})")
                )
                assert "Seq Scan on keyhouse_" not in plan, plan
                await connection.execute("DEALLOCATE p")
            await connection.close(timeout=30)

    asyncio.run(scenario())
