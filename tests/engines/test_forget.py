"""A byte search of files and tables finds nothing of a forgotten space."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from keyhouse import ManualClock, Store, open_engine
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.dynamodb.log import table_of
from keyhouse.errors import ContentionError
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import forget
from keyhouse.testing.faults import FaultyEngine, Killed, die, meanwhile
from tests.support.dynamodb_tables import plain_client, settings
from tests.support.engine_openers import postgres_schema

MARKER = "marker-7f3a"
SPACE = f"space-{MARKER}"


async def fill(engine: Engine) -> None:
    """Write values small and large, again and again, and delete some: copies are left in places."""
    for turn in range(3):
        for number in range(40):
            text = f'"{MARKER} {turn} ' + "x" * (20 if number % 4 else 20_000) + '"'
            puts = (Put(f"{MARKER}-{number}", text.encode()),)
            await engine.commit(SPACE, Batch(puts=puts, id=f"{MARKER} {turn} {number}"))
        await engine.commit(SPACE, Batch(deletes=(f"{MARKER}-{turn}",)))
    expires = engine.clock.now() + 1_000
    await engine.commit(SPACE, Batch(puts=(Put(f"{MARKER}-due", b"1", expires),)))
    await engine.commit("other", Batch(puts=(Put("kept", b'"kept"'),)))


def files_with(folder: Path, text: str) -> list[str]:
    return sorted(
        each.name
        for each in folder.rglob("*")
        if each.is_file() and text.encode() in each.read_bytes()
    )


@pytest.mark.parametrize("url", ["sqlite:///{}/rows.db", "sqlite:///{}/rows.db?layout=rosey"])
def test_a_search_of_the_sqlite_file_and_its_wal_finds_nothing(tmp_path: Path, url: str) -> None:
    async def scenario() -> None:
        engine = await open_engine(url.format(tmp_path))
        await fill(engine)
        assert files_with(tmp_path, MARKER)
        assert await forget(engine, SPACE, watch_seconds=0) == 40
        assert files_with(tmp_path, MARKER) == []
        assert files_with(tmp_path, "kept") == ["rows.db"]
        await engine.close()
        assert files_with(tmp_path, MARKER) == []

    asyncio.run(scenario())


def test_a_search_of_the_rocksdb_folder_finds_no_value(tmp_path: Path) -> None:
    """RocksDB's list of files has the first and last key of each file until the next start."""

    async def scenario() -> None:
        engine = await open_engine(f"rocksdb:///{tmp_path}/rows")
        await fill(engine)
        assert files_with(tmp_path, MARKER)
        await forget(engine, SPACE, watch_seconds=0)
        async with asyncio.timeout(20):  # RocksDB deletes old files in the background
            while any(not name.startswith("MANIFEST") for name in files_with(tmp_path, MARKER)):
                await asyncio.sleep(0.05)
        await engine.close()
        engine = await open_engine(f"rocksdb:///{tmp_path}/rows")
        async with asyncio.timeout(20):
            while files_with(tmp_path, MARKER):
                await asyncio.sleep(0.05)
        await engine.close()

    asyncio.run(scenario())


def test_the_postgresql_tables_hold_nothing_of_the_space() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        engine = await open_engine(url)
        await fill(engine)
        await forget(engine, SPACE, watch_seconds=0)
        connection = await asyncpg.connect(url)
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        for (table,) in tables:
            for row in await connection.fetch(f'SELECT t::text FROM "{table}" t'):
                assert MARKER not in row[0], table
        await connection.close()
        await engine.close()

    asyncio.run(scenario())


def test_the_dynamodb_tables_hold_nothing_of_the_space() -> None:
    async def scenario() -> None:
        where = settings()
        engine = await DynamoDBEngine.open(where)
        await fill(engine)
        await forget(engine, SPACE, watch_seconds=0)
        async with plain_client() as client:
            for table in (where.table, table_of(where.table)):
                items = (await client.scan(TableName=table))["Items"]
                assert MARKER not in json.dumps(items, default=str), table
                assert items, "those of the other space"
        await engine.close()

    asyncio.run(scenario())


NOTE = Record(str, "note:{name}", name="note")
NOTES = Schema("notes", NOTE, space=Space("a test"))


def test_forget_continues_after_a_kill_at_every_step(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = await open_engine(f"sqlite:///{tmp_path}/rows.db", clock=ManualClock())
        for at in range(1, 40):
            store = Store(NOTES, engine, "notes")
            for number in range(10):
                await store.put(NOTE, "x", name=f"{number}")
            faulty: Any = FaultyEngine(engine, die(at), rows=3)
            try:
                await Store(NOTES, faulty, "notes").forget(watch_seconds=0)
            except Killed:
                assert await store.forget(watch_seconds=0) <= 10
            else:
                break
            assert (await engine.scan("notes", Span(), limit=1)).rows == []
        assert at > 5, "it was killed at each of the steps"
        await engine.close()

    asyncio.run(scenario())


def test_forget_reports_a_space_that_is_still_written() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        store = Store(NOTES, engine, "notes")

        async def write() -> None:
            await store.put(NOTE, "x", name="late")

        faulty: Any = FaultyEngine(engine, meanwhile(1, write, call="forget", after=True))
        with pytest.raises(ContentionError):
            await Store(NOTES, faulty, "notes").forget(watch_seconds=0)
        await engine.close()

    asyncio.run(scenario())


def test_a_watch_reports_the_rows_of_a_space_that_is_forgotten() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        store = Store(NOTES, engine, "notes")
        await store.put(NOTE, "x", name="a")
        watch = engine.watch("notes", Span())
        seen = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await store.forget(watch_seconds=0.01)
        change = await seen
        assert (change.key, change.value) == ("note:a", None)
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())
