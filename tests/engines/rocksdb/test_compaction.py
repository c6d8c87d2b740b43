"""Erasing a space rewrites files while others commit."""

import asyncio
import threading
from pathlib import Path

import pytest

from keyhouse.engines.rocksdb.database import Database
from keyhouse.errors import FullError, UnavailableError
from tests.engines.support.rocksdb_databases import opened, put
from tests.support.polling import until


class Compactions:
    """Compactions that wait until they are allowed to continue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Event()
        self.allowed = threading.Event()
        self.finished = 0
        compact = Database.compact

        def wait(database: Database, prefix: bytes, *, rows_only: bool) -> None:
            self.started.set()
            assert self.allowed.wait(60)
            compact(database, prefix, rows_only=rows_only)
            self.finished += 1

        monkeypatch.setattr(Database, "compact", wait)


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> Compactions:
    return Compactions(monkeypatch)


def test_others_commit_while_files_are_rewritten(tmp_path: Path, compactions: Compactions) -> None:
    """They waited for the compaction of the whole folder: a second with 200,000 rows."""

    async def scenario() -> None:
        async with opened(tmp_path / "rows") as engine:
            await put(engine, "secret", space="gone")
            erasing = asyncio.ensure_future(engine.forget("gone"))
            await until(compactions.started.is_set)
            assert await put(engine, "a") is not None
            assert not erasing.done()
            compactions.allowed.set()
            await erasing
            assert [space async for space in engine.spaces()] == ["s"]

    asyncio.run(scenario())


def test_closing_waits_for_an_erasure_whose_caller_was_cancelled(
    tmp_path: Path, compactions: Compactions
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "rows") as engine:
            await put(engine, "secret", space="gone")
            erasing = asyncio.ensure_future(engine.forget("gone"))
            await until(compactions.started.is_set)
            erasing.cancel()
            await asyncio.wait([erasing])
            asyncio.get_running_loop().call_soon(compactions.allowed.set)
        assert compactions.finished == 1

    asyncio.run(scenario())


def test_a_failed_folder_is_reopened_after_the_erasure(
    tmp_path: Path, compactions: Compactions
) -> None:
    """The compaction keeps the folder locked: closing it would leave nothing to read."""

    async def scenario() -> None:
        async with opened(tmp_path / "rows") as engine:
            await put(engine, "a")
            erasing = asyncio.ensure_future(engine.forget("gone"))
            await until(compactions.started.is_set)
            engine.writer.database.failed = FullError("The disk is full; free some space.")
            with pytest.raises(UnavailableError, match="reopened when an erasure ends"):
                await put(engine, "b")
            assert await engine.read("s", ["a"]) != [None]
            compactions.allowed.set()
            await erasing
            assert await put(engine, "b") is not None

    asyncio.run(scenario())
