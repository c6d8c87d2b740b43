"""Watches on SQLite: other processes, other tools, and a damaged log.

`embedded/test_watch.py` has the tests that RocksDB shares.
"""

import asyncio
from pathlib import Path

import apsw
import pytest

from keyhouse.engine import Change, Span
from keyhouse.engines.sqlite import SqliteEngine, feed
from keyhouse.errors import UnreadableError, WatchExpiredError
from keyhouse.testing.conformance.harness import leave, step
from tests.engines.support.embedded_engines import put, taken
from tests.support.polling import loop_turns

ALL = Span()


def test_a_watch_expires_when_another_process_pruned_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "POLL_SECONDS", 3_600)  # as if this process was suspended

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        other = SqliteEngine.open(tmp_path / "rows.db", changes_kept=5)
        await put(engine, "first")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "first"
        for number in range(50):
            await put(other, f"k{number}")
        await other.sweep(limit=1)
        engine.feed.pull()
        with pytest.raises(WatchExpiredError):
            await step(watch)
        await engine.close()
        await other.close()

    asyncio.run(scenario())


def test_without_a_watch_nothing_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull, polls = feed.Feed.pull, 0

    def counted(self: feed.Feed) -> None:
        nonlocal polls
        polls += 1
        pull(self)

    async def is_polling() -> bool:
        before = polls
        await loop_turns(20)
        return polls > before

    monkeypatch.setattr(feed, "POLL_SECONDS", 0)
    monkeypatch.setattr(feed.Feed, "pull", counted)

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        await put(engine, "a")
        assert not await is_polling()
        watches = [engine.watch(space, ALL, since=0) for space in ("s", "s", "another")]
        await asyncio.gather(*(step(watch) for watch in watches[:2]))
        assert await is_polling()
        for watch in watches[:2]:
            await leave(watch)
        assert not await is_polling()
        with pytest.raises(WatchExpiredError):
            await step(engine.watch("s", ALL, since=99))
        assert not await is_polling(), "a watch that is refused leaves nothing behind"
        await engine.close()

    asyncio.run(scenario())


def test_a_damaged_log_fails_the_watchers_and_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        await put(engine, "a")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "a"
        waiting = asyncio.ensure_future(step(watch))
        await asyncio.sleep(0)

        def damaged(sql: str, bindings: object = ()) -> list[object]:
            raise UnreadableError("The database is damaged; restore it from a backup.")

        monkeypatch.setattr(type(engine.reader), "all", staticmethod(damaged))
        assert await put(engine, "b") == 2
        with pytest.raises(UnreadableError):
            await waiting
        monkeypatch.undo()
        await engine.close()

    asyncio.run(scenario())


def test_a_row_changed_by_hand_is_not_a_change(tmp_path: Path) -> None:
    """Changing a row by hand adds nothing to the log; a watch delivers only what the log has."""

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        await put(engine, "a")
        await put(engine, "b")
        tool = apsw.Connection(str(tmp_path / "rows.db"))
        tool.execute("DELETE FROM rows WHERE key = 'a'")
        tool.close()
        assert await taken(engine, since=0, last="b") == [Change("b", 2, b"1")]
        await engine.close()

    asyncio.run(scenario())
