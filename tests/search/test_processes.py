"""The search files of processes that share a folder: one writes them, the others read."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from keyhouse.engine import Engine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.file_lock import FileLock
from tests.search.support.library import (
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


@pytest.mark.long
def test_processes_share_the_files_and_another_writes_them_when_the_writer_is_killed(
    tmp_path: Path,
) -> None:
    """Each process wrote the same file before, and followers overwrote each other's revision."""

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        store = store_on(engine)
        with ExitStack() as stack:
            processes = []
            for _ in range(3):
                module = "tests.search.support.indexing_process"
                process = PipedProcess(module, str(tmp_path), errors=STDERR)
                processes.append(stack.enter_context(process))
                assert process.stdout.readline() == "running\n"
                while process.stdout.readline() != "wrote\n":
                    pass
            index = index_on(engine, tmp_path / "search")
            for number, process in enumerate(processes):
                entry = await store.put(VOLUME, volume(f"mine{number}", f"Mine {number}"))
                wanted = [f"mine{each}" for each in range(number + 1)]
                assert await found(index, "mine", after=entry.revision) == wanted
                process.kill()
        entry = await store.put(VOLUME, volume("last", "Last"))
        assert await found(index, "last", after=entry.revision) == ["last"]
        assert index.followers[""].rebuilds == 0
        volumes = [each.record async for each in store.scan(VOLUME)]
        for query in ("title", "title 1", "round"):
            assert await found(index, query) == naive(volumes, query)
        await index.close()
        file = apsw.Connection(str(only_file(tmp_path / "search")))
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        file.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        file.close()
        await engine.close()

    asyncio.run(scenario())


def test_a_file_that_a_reader_removes_is_built_again_by_its_writer(tmp_path: Path) -> None:
    """Such as one that a search has found damaged, or of a space that was forgotten."""

    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("1", "One"))
        writer, reader = index_on(engine, folder), index_on(engine, folder)
        assert await found(writer, "one") == await found(reader, "one") == ["1"]
        writing, reading = writer.followers[""], reader.followers[""]
        assert (writing.rebuilds, reading.rebuilds) == (1, 0)
        await reading.repair()
        await until(lambda: writing.rebuilds == 2)
        entry = await store.put(VOLUME, volume("2", "One"))
        for index in (reader, writer):
            assert await found(index, "one", after=entry.revision) == ["1", "2"]
        assert reading.rebuilds == 0
        await writer.close()
        entry = await store.put(VOLUME, volume("3", "One"))
        assert await found(reader, "one", after=entry.revision) == ["1", "2", "3"]
        assert reading.rebuilds == 0
        await reader.close()

    run(scenario, tmp_path)


def test_a_lock_is_of_one_and_survives_the_deletion_of_its_file(tmp_path: Path) -> None:
    one, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert one.acquire() and one.acquire() and one.is_held
    assert not other.acquire() and not other.is_held
    one.release(delete=True)
    assert not (tmp_path / "lock").exists()
    assert other.acquire() and not one.acquire()
    other.release()
    other.release()
    assert one.acquire()
