"""A search index that is built again: after damage to its file, and after kills."""

import asyncio
import os
import random
import signal
import time
from itertools import islice
from pathlib import Path

import apsw
import pytest

from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import UnavailableError
from keyhouse.search import SearchIndex, SearchSchema
from keyhouse.testing.faults import FaultyEngine, Killed, die
from tests.search.support.library import (
    SEARCH,
    VOLUME,
    found,
    index_on,
    naive,
    only_file,
    run,
    store_on,
    volume,
)
from tests.support.polling import until
from tests.support.program import STDERR, PipedProcess


def test_a_missing_a_damaged_and_an_outdated_file_are_built_again(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        await store_on(engine).put(VOLUME, volume("1", "One"))

        async def rebuilt(schema: SearchSchema = SEARCH) -> int:
            index = SearchIndex(schema, folder, store_on(engine))
            assert await found(index, "one") == ["1"]
            rebuilds = index.followers[""].rebuilds
            await index.close()
            return rebuilds

        assert await rebuilt() == 1
        assert await rebuilt() == 0
        path = only_file(folder)
        path.unlink()
        assert await rebuilt() == 1
        path.write_bytes(b"not a database" * 1_000)
        assert await rebuilt() == 1
        path.write_bytes(b"")
        assert await rebuilt() == 1
        (folder / f"{path.stem}.new").write_bytes(b"left by a kill")
        path.unlink()
        assert await rebuilt() == 1
        newer = SearchSchema("library", *SEARCH.sources, fields=SEARCH.fields, version=2)
        assert [await rebuilt(newer), await rebuilt(newer), await rebuilt()] == [1, 0, 1]

    run(scenario, tmp_path)


def test_a_file_damaged_while_it_is_open_is_built_again(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        for number in range(500):
            await store.put(VOLUME, volume(str(number), f"Title {number} " + "word " * 20))
        index = index_on(engine, folder)
        assert len(await found(index, "title")) == 500
        await index.close()
        path = only_file(folder)
        data = bytearray(path.read_bytes())
        data[3 * 4_096 :] = os.urandom(len(data) - 3 * 4_096)
        path.write_bytes(data)
        index = index_on(engine, folder)

        async def is_repaired() -> bool:
            return len(await found(index, "title")) >= 500

        await until(is_repaired, retry=UnavailableError)
        await index.close()

    run(scenario, tmp_path)


def test_a_file_of_another_store_with_the_same_revisions_is_not_used(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        for number in range(5):
            await store.put(VOLUME, volume(str(number), "Old"))
        index = index_on(engine, folder)
        assert len(await found(index, "old")) == 5
        await index.close()
        other = MemoryEngine()  # such as one restored from a backup
        for number in reversed(range(10)):
            entry = await store_on(other).put(VOLUME, volume(str(number), "New"))
        index = index_on(other, folder)
        assert len(await found(index, "new", after=entry.revision)) == 10
        assert await found(index, "old") == []
        await index.close()

    run(scenario, tmp_path)


def test_an_index_whose_engine_dies_at_every_step_is_right_afterwards(tmp_path: Path) -> None:
    async def one(step: int) -> bool:
        folder = tmp_path / str(step)
        engine = MemoryEngine()
        store = store_on(engine)
        volumes = {str(n): volume(str(n), f"Title {n % 3}") for n in range(4)}
        for each in volumes.values():
            await store.put(VOLUME, each)
        dying = FaultyEngine(engine, die(step))
        index = index_on(dying, folder)
        died = False
        try:
            await index.search("title", timeout_seconds=0.05)
            volumes["0"] = volume("0", "Changed")
            entry = await store.put(VOLUME, volumes["0"])
            await index.search("changed", after=entry.revision, timeout_seconds=0.2)
        except (Killed, UnavailableError):
            died = True
        for follower in index.followers.values():
            follower.task.cancel()
            died = died or not (await asyncio.gather(follower.task, return_exceptions=True))
        volumes["1"] = volume("1", "Changed")
        entry = await store.put(VOLUME, volumes["1"])
        again = index_on(engine, folder)
        for query in ("title", "changed", "title 0"):
            wanted = naive(volumes.values(), query)
            assert await found(again, query, after=entry.revision) == wanted
        await again.close()
        await index.close()
        return died

    async def every_step(_: Engine, __: Path) -> None:
        steps = 1
        while await one(steps):
            steps += 1
        assert steps > 2

    run(every_step, tmp_path)


@pytest.mark.long
def test_an_index_whose_process_is_killed_again_and_again_is_right(tmp_path: Path) -> None:
    """The process writes and follows; it is killed while it builds and while it applies changes."""
    chance = random.Random(11)
    for kill in range(6):
        if kill == 3:
            for path in (tmp_path / "search").iterdir():
                path.unlink()
        module = "tests.search.support.indexing_process"
        with PipedProcess(module, str(tmp_path), errors=STDERR) as process:
            assert process.stdout.readline() == "running\n"
            if kill == 0:  # whatever the disk, there is something to find
                wrote = (line for line in process.stdout if line == "wrote\n")
                assert len(list(islice(wrote, 4))) == 4
            time.sleep(chance.uniform(0.02, 0.4))
        assert process.returncode == -signal.SIGKILL

    async def check() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        store = store_on(engine)
        volumes = [entry.record async for entry in store.scan(VOLUME)]
        assert len(volumes) >= 50
        index = index_on(engine, tmp_path / "search")
        revision = await store.revision()
        for query in ("title", "title 1", "round", "7"):
            wanted = naive(volumes, query)
            assert await found(index, query, after=revision, timeout_seconds=20) == wanted
        await index.close()
        file = apsw.Connection(str(only_file(tmp_path / "search")))
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        file.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        file.close()
        await engine.close()

    asyncio.run(check())
