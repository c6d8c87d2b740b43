"""Layouts and migrations of the two SQL engines. Operators query rosey's table with plain SQL."""

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from keyhouse.clock import Clock, ManualClock, SystemClock
from keyhouse.engine import Add, Batch, Engine, Put, Row, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.registry import open_engine
from keyhouse.engines.sql import Layout, layout_of, migrate
from keyhouse.engines.sql.script import FOLDER
from keyhouse.engines.sql.version import HEAD, VERSIONS
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import UsageError
from keyhouse.testing.conformance import Conformance, Opener
from tests.support.engine_openers import postgres_schema

SEED_15_3 = {
    "recent": """
        -- Recent set operations (from updated_at)
        SELECT plugin_name, key, updated_at
        FROM plugin_kv_storage
        ORDER BY updated_at DESC
        LIMIT 20;
    """,
    "by plugin": """
        -- Keys by plugin
        SELECT plugin_name, COUNT(*) as key_count
        FROM plugin_kv_storage
        GROUP BY plugin_name;
    """,
    "expired": """
        -- Expired keys (should be cleaned up)
        SELECT plugin_name, key, expires_at
        FROM plugin_kv_storage
        WHERE expires_at < CURRENT_TIMESTAMP;
    """,
}
"""The operator's SQL, verbatim from the document."""


class Database(Protocol):
    """A database with rosey's layout, opened by the engine and by an operator."""

    async def open(self, clock: Clock) -> Engine: ...

    async def query(self, sql: str) -> list[tuple[Any, ...]]: ...


class OfSqlite:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, clock: Clock) -> Engine:
        return await open_engine(f"sqlite:{self._path}?layout=rosey", clock=clock)

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self._path))
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()


class OfPostgres:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, clock: Clock) -> Engine:
        return await open_engine(f"{self._url}&layout=rosey", clock=clock)

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self._url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return OfSqlite(tmp_path / "rosey.db")
    return OfPostgres(asyncio.run(postgres_schema()))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extra)])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    layout, urls = layout_of("rosey"), list[str]()

    async def open_rosey(clock: Clock, *, changes_kept: int = 100_000) -> Engine:
        if request.param == "sqlite":
            return SqliteEngine.open(
                tmp_path / "rosey.db", clock=clock, changes_kept=changes_kept, layout=layout
            )
        if not urls:
            urls.append(await postgres_schema())
        return PostgresEngine.open(urls[0], clock=clock, changes_kept=changes_kept, layout=layout)

    return open_rosey


class TestRosey(Conformance):
    """The engine's contract does not depend on the layout. A usual run shows it on SQLite; rosey's
    own tests use this layout on PostgreSQL."""


async def put(
    engine: Engine, *keys: str, plugin: str = "trivia", expires: int | None = None
) -> None:
    assert await engine.commit(
        plugin, Batch(puts=tuple(Put(key, b'{"n":1}', expires) for key in keys))
    )


def moment(value: str | datetime) -> int:
    """Convert a timestamp of an operator's query to milliseconds."""
    shown = (
        value if isinstance(value, datetime) else datetime.fromisoformat(value).replace(tzinfo=UTC)
    )
    return round(shown.timestamp() * 1_000)


def test_the_documented_operator_sql_runs_as_written(
    database: Database,
) -> None:
    async def scenario() -> None:
        clock = ManualClock(SystemClock().now() - 3_600_000)
        engine = await database.open(clock)
        await put(engine, "old", expires=clock.now() + 60_000)
        clock.set(SystemClock().now())
        await put(engine, "score", "streak")
        clock.advance(milliseconds=5)
        await put(engine, "quote", plugin="quote-db", expires=clock.now() + 60_000)

        recent = await database.query(SEED_15_3["recent"])
        assert (recent[0][:2], recent[-1][:2]) == (("quote-db", "quote"), ("trivia", "old"))
        assert moment(recent[0][2]) == clock.now()
        assert sorted(await database.query(SEED_15_3["by plugin"])) == [
            ("quote-db", 1),
            ("trivia", 3),
        ]
        assert [row[:2] for row in await database.query(SEED_15_3["expired"])] == [
            ("trivia", "old")
        ]

        assert await engine.sweep(limit=100) == 1
        assert await database.query(SEED_15_3["expired"]) == []
        await engine.close()

    asyncio.run(scenario())


def test_created_at_is_set_once_and_again_after_expiry(database: Database) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine = await database.open(clock)
        times = "SELECT created_at, updated_at FROM plugin_kv_storage WHERE key = 'k'"

        async def stamps() -> tuple[int, int]:
            ((created, updated),) = await database.query(times)
            return moment(created), moment(updated)

        first = clock.now()
        await put(engine, "k", expires=first + 1_000)
        assert await stamps() == (first, first)
        clock.advance(milliseconds=999)
        await put(engine, "k", expires=first + 2_000)
        assert await stamps() == (first, first + 999)
        clock.set(first + 2_000)
        await put(engine, "k", expires=first + 3_000)
        assert await stamps() == (first + 2_000, first + 2_000)
        clock.set(first + 3_000)
        await engine.commit("trivia", Batch(adds=(Add("k", 1),)))
        assert await stamps() == (first + 3_000, first + 3_000)
        clock.advance(milliseconds=1)
        await engine.commit("trivia", Batch(adds=(Add("k", 1),)))
        assert await stamps() == (first + 3_000, first + 3_001)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "expires",
    [1, 1_000, 1_767_225_600_001, 1_767_225_600_999, 4_000_000_000_123, 253_402_300_799_999],
)
def test_an_expiry_is_stored_to_the_millisecond(database: Database, expires: int) -> None:
    async def scenario() -> None:
        clock = ManualClock(expires - 1)
        engine = await database.open(clock)
        await put(engine, "k", expires=expires)
        assert await engine.read("trivia", ["k"]) == [Row("k", b'{"n":1}', 1, expires)]
        clock.set(expires)
        assert await engine.read("trivia", ["k"]) == [None]
        await engine.close()

    asyncio.run(scenario())


def test_an_expiry_beyond_the_date_range_is_clamped(
    database: Database,
) -> None:
    async def scenario() -> None:
        engine = await database.open(ManualClock())
        await put(engine, "k", expires=2**60)
        assert await engine.read("trivia", ["k"]) == [Row("k", b'{"n":1}', 1, 253_402_300_799_999)]
        await engine.close()

    asyncio.run(scenario())


def test_the_table_has_the_documented_columns_and_indexes(database: Database) -> None:
    async def scenario() -> None:
        engine = await database.open(ManualClock())
        await put(engine, "k")
        await database.query(
            "SELECT plugin_name, key, value, expires_at, created_at, updated_at"
            " FROM plugin_kv_storage"
        )
        if isinstance(database, OfSqlite):
            indexes = await database.query(
                "SELECT name, sql FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%'"
            )
        else:
            indexes = await database.query(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema"
            )
        found = {name: re.sub(r'["()]', "", text) for name, text in indexes}
        assert "expires_at IS NOT NULL" in found["idx_kv_expires_at"]
        assert found["idx_kv_plugin_prefix"].endswith("plugin_name, key")
        await engine.close()

    asyncio.run(scenario())


def shape(path: Path) -> dict[str, Any]:
    """Return the schema of a SQLite file: tables, columns, indexes, triggers, views and header."""
    file = apsw.Connection(str(path))
    tables = [
        row
        for row in file.execute("PRAGMA table_list")
        if row[0] == "main" and not row[1].startswith("sqlite_")
    ]
    found: dict[str, Any] = {"tables": sorted(tables)}
    for _, name, *_ in tables:
        found[name] = sorted(row[1:] for row in file.execute(f'PRAGMA table_xinfo("{name}")'))
        indexes = list(file.execute(f'PRAGMA index_list("{name}")'))
        for _, index, unique, origin, partial in indexes:
            columns = [row[2:] for row in file.execute(f'PRAGMA index_xinfo("{index}")')]
            found[f"{name}.{index}"] = (unique, origin, partial, columns)
    texts = file.execute(
        "SELECT name, sql FROM sqlite_schema"
        " WHERE type IN ('trigger', 'view') OR sql LIKE '%WHERE%'"
    )
    found["texts"] = {name: re.sub(r"\s+", " ", text.replace('"', "")) for name, text in texts}
    found["header"] = (file.pragma("application_id"), file.pragma("user_version"))
    found["versions"] = {
        name: file.execute(f'SELECT version_num FROM "{name}"').fetchall()
        for _, name, *_ in tables
        if "version" in name
    }
    file.close()
    return found


@pytest.mark.parametrize("query", ["", "?layout=rosey", "?layout=streamkit"])
def test_alembic_and_the_engine_create_the_same_file(query: str, tmp_path: Path) -> None:
    migrate.upgrade(f"sqlite:{tmp_path}/alembic.db{query}")

    async def make() -> None:
        await (await open_engine(f"sqlite:{tmp_path}/engine.db{query}")).close()

    asyncio.run(make())
    assert shape(tmp_path / "alembic.db") == shape(tmp_path / "engine.db")


def test_the_known_versions_match_alembic() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == VERSIONS
    assert scripts.get_heads() == [HEAD]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:{tmp_path}/rows.db?"
        if request.param == "sqlite"
        else f"{asyncio.run(postgres_schema())}&"
    )


def names_in(url: str) -> set[str]:
    """Return every table, view and function in the database."""
    if url.startswith("sqlite:"):
        file = apsw.Connection(url.removeprefix("sqlite:").partition("?")[0])
        return {
            name
            for (name,) in file.execute(
                "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
            )
        }

    async def names() -> set[str]:
        connection = await asyncpg.connect(url.rstrip("&"))
        tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema::regnamespace"
        functions = "SELECT proname FROM pg_proc WHERE pronamespace = current_schema::regnamespace"
        found = await connection.fetch(f"{tables} UNION ALL {functions}")
        await connection.close()
        return {name for (name,) in found}

    return asyncio.run(names())


@pytest.mark.parametrize("layout", ["rosey", "streamkit"])
def test_alembic_upgrades_and_downgrades_without_leftovers(url: str, layout: str) -> None:
    place = f"{url}layout={layout}"
    assert migrate.current(place) is None
    migrate.upgrade(place)
    migrate.upgrade(place)
    assert migrate.current(place) == HEAD
    assert names_in(url)
    migrate.downgrade(place)
    migrate.downgrade(place)
    assert migrate.current(place) is None
    assert names_in(url) == set()


def test_engine_and_alembic_accept_tables_of_the_other(url: str) -> None:
    async def write() -> None:
        engine = await open_engine(f"{url}layout=rosey")
        await put(engine, "k")
        assert await engine.read("trivia", ["absent", "k"]) == [None, Row("k", b'{"n":1}', 1)]
        await engine.close()

    migrate.upgrade(f"{url}layout=rosey")
    asyncio.run(write())
    migrate.downgrade(f"{url}layout=rosey")
    asyncio.run(write())
    assert migrate.current(f"{url}layout=rosey") == HEAD
    migrate.downgrade(f"{url}layout=rosey")
    assert names_in(url) == set()


def test_systems_share_a_database_but_no_tables(url: str) -> None:
    async def scenario() -> None:
        layouts = ("rosey", "streamkit", "history")
        engines = [await open_engine(f"{url}layout={layout}") for layout in layouts]
        for number, engine in enumerate(engines):
            await engine.commit("s", Batch(puts=(Put("k", b"%d" % number),)))
        assert [await engine.read("s", ["k"]) for engine in engines] == [
            [Row("k", b"%d" % n, 1)] for n in range(3)
        ]
        for engine in engines:
            await engine.close()
        migrate_away = f"{url}layout=streamkit"
        await asyncio.to_thread(migrate.downgrade, migrate_away)
        again = await open_engine(f"{url}layout=history")
        assert await again.read("s", ["k"]) == [Row("k", b"2", 1)]
        await again.close()

    asyncio.run(scenario())


def test_names_that_need_quoting_are_quoted(tmp_path: Path) -> None:
    layout = Layout.named('it\'s "odd"; -- ')

    async def scenario() -> None:
        for engine in (
            SqliteEngine.open(tmp_path / "odd.db", layout=layout),
            PostgresEngine.open(await postgres_schema(), layout=layout),
        ):
            for _ in range(2):
                await engine.commit(
                    "s", Batch(puts=(Put("k", b"1"),), adds=(Add("n", 1),), deletes=("x",), id=None)
                )
            assert [row.key for row in (await engine.scan("s", Span(), limit=9)).rows] == ["k", "n"]
            assert await engine.sweep(limit=1) == 0
            await engine.close()

    asyncio.run(scenario())


def test_opening_existing_tables_does_not_import_sqlalchemy(tmp_path: Path) -> None:
    """The import takes longer than the rest of opening. SQLite never needs it, PostgreSQL only in
    an empty database."""
    url = asyncio.run(postgres_schema())
    migrate.upgrade(url)
    program = (
        "import asyncio, sys\nfrom keyhouse.engines.registry import open_engine\n"
        "async def use(url):\n    engine = await open_engine(url)\n"
        "    await engine.read('s', ['k'])\n    await engine.close()\n"
        f"asyncio.run(use('sqlite:{tmp_path}/rows.db'))\nasyncio.run(use({url!r}))\n"
        "print([name for name in ('alembic', 'sqlalchemy') if name in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.parametrize("url", ["memory:", "rocksdb:folder", "nonsense"])
def test_only_the_sql_engines_have_migrations(url: str) -> None:
    with pytest.raises(UsageError, match="Only the SQL engines"):
        migrate.upgrade(url)


@pytest.mark.parametrize("query", ["layout=", "layout=a&layout=b"])
def test_a_url_with_an_invalid_layout_is_rejected(query: str) -> None:
    with pytest.raises(UsageError, match="Invalid layout"):
        asyncio.run(open_engine(f"sqlite:rows.db?{query}"))
