"""A byte search of files and tables finds nothing of a forgotten space."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from keyhouse import ManualClock, Store, open_engine
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.dynamodb.log import table_of
from keyhouse.errors import ContentionError, LeaseError, PreparingError
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import FORGET_KEY, forget, resume_interrupted
from keyhouse.testing.faults import FaultyEngine, Killed, die, meanwhile
from tests.support.dynamodb_tables import plain_client, settings
from tests.support.engine_openers import OPENERS, postgres_schema
from tests.support.polling import until

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
    found = []
    for each in folder.rglob("*"):
        with suppress(FileNotFoundError):  # RocksDB deletes old files in the background
            if each.is_file() and text.encode() in each.read_bytes():
                found.append(each.name)
    return sorted(found)


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
        await until(  # RocksDB deletes old files in the background
            lambda: all(name.startswith("MANIFEST") for name in files_with(tmp_path, MARKER))
        )
        await engine.close()
        engine = await open_engine(f"rocksdb:///{tmp_path}/rows")
        await until(lambda: not files_with(tmp_path, MARKER))
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


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_forget_killed_at_every_step_is_finished_once_its_lease_has_expired(
    tmp_path: Path, after: bool
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine = await open_engine(f"sqlite:///{tmp_path}/rows.db", clock=clock)
        resumed = 0
        for at in range(1, 60):
            store = Store(NOTES, engine, "notes")
            for number in range(10):
                await store.put(NOTE, "x", name=f"{number}")
            faulty: Any = FaultyEngine(engine, die(at, after=after), rows=3)
            try:
                await Store(NOTES, faulty, "notes").forget(watch_seconds=0)
                break
            except Killed:
                pass
            again = Store(NOTES, engine, "notes")
            left = (await engine.scan("notes", Span(), limit=20)).rows
            if FORGET_KEY in [row.key for row in left]:
                held = await resume_interrupted(again, watch_seconds=0)
                assert held.lease_until is not None and not held.forgotten
                with pytest.raises(PreparingError):
                    await again.put(NOTE, "written meanwhile", name="new")
                clock.advance(seconds=61)
                assert (await resume_interrupted(again, watch_seconds=0)).forgotten
                resumed += 1
                assert (await engine.scan("notes", Span(), limit=1)).rows == []
            else:
                assert len(left) in (0, 10), "it had not started, or had ended"
            await again.put(NOTE, "x", name="0")
            assert not (await resume_interrupted(again, watch_seconds=0)).forgotten
            assert await again.get(NOTE, name="0") == "x"
        assert resumed > 5, "it was killed at each of the steps"
        await engine.close()

    asyncio.run(scenario())


def test_a_runner_that_lost_its_mark_deletes_nothing_more() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:", clock=ManualClock())
        store = Store(NOTES, engine, "notes")
        for number in range(10):
            await store.put(NOTE, "x", name=f"{number}")

        async def finish_and_write() -> None:
            await Store(NOTES, engine, "notes").forget(watch_seconds=0)
            await Store(NOTES, engine, "notes").put(NOTE, "new", name="new")

        faulty: Any = FaultyEngine(engine, meanwhile(3, finish_and_write, call="commit"), rows=3)
        with pytest.raises(LeaseError):
            await Store(NOTES, faulty, "notes").forget(watch_seconds=0)
        assert await store.get(NOTE, name="new") == "new"
        await engine.close()

    asyncio.run(scenario())


def test_a_schema_that_has_the_key_of_the_mark_is_forgotten_without_it() -> None:
    async def scenario() -> None:
        row = Record(str, "{key}", name="row")
        schema = Schema("open", row, space=Space("a test"))
        engine = await open_engine("memory:", clock=ManualClock())
        store = Store(schema, engine, "plugin")
        await store.put(row, "mine", key=FORGET_KEY)
        assert not (await resume_interrupted(store)).forgotten
        assert await store.get(row, key=FORGET_KEY) == "mine"
        assert await store.forget(watch_seconds=0) == 1
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
        assert (await seen).key == FORGET_KEY
        async with asyncio.timeout(10):
            while (change := await anext(watch)).key == FORGET_KEY:
                pass
        assert (change.key, change.value) == ("note:a", None)
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", OPENERS)
def test_another_process_writes_a_space_as_soon_as_it_was_forgotten(
    name: str, tmp_path: Path
) -> None:
    """On JetStream it read the mark for minutes, and rejected the tenant."""

    async def scenario() -> None:
        clock = ManualClock()
        opener = OPENERS[name](tmp_path)
        engine = await opener(clock)
        if not engine.capabilities.shared:
            await engine.close()
            return
        other = await opener(clock)
        store, elsewhere = Store(NOTES, engine, "notes"), Store(NOTES, other, "notes")
        for number in range(10):
            await store.put(NOTE, "x", name=f"{number}")
        assert await elsewhere.get(NOTE, name="0") == "x"
        await store.forget(watch_seconds=0)
        clock.advance(seconds=11)  # a store that has written within ten seconds does not look
        assert await other.read("notes", [FORGET_KEY]) == [None]
        await elsewhere.put(NOTE, "new", name="1")
        assert await store.get(NOTE, name="1") == "new"
        assert await store.get(NOTE, name="0") is None
        await other.close()
        await engine.close()

    asyncio.run(scenario())
