"""How a watch on SQLite keeps up: with others, after falling behind, and when the log has gone from under it."""

import asyncio
from pathlib import Path

import apsw
import pytest

from keyhouse.engine import Batch, Change, Put, Span
from keyhouse.engines import watcher
from keyhouse.engines.sqlite import SqliteEngine, feed
from keyhouse.errors import ClosedError, UnreadableError, WatchExpiredError
from keyhouse.testing.conformance.stage import leave, step

ALL = Span()


async def put(engine: SqliteEngine, key: str, value: bytes = b"1", space: str = "s") -> int | None:
    return await engine.commit(space, Batch(puts=(Put(key, value),)))


async def taken(engine: SqliteEngine, *, since: int, last: str) -> list[Change]:
    watch = engine.watch("s", ALL, since=since)
    changes = [await step(watch)]
    while changes[-1].key != last:
        changes.append(await step(watch))
    await leave(watch)
    return changes


@pytest.mark.parametrize("since", [0, 1, 24, 25, 26, 49, 50])
def test_the_log_is_read_in_windows_without_a_gap_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int
) -> None:
    monkeypatch.setattr(feed, "WINDOW_COMMITS", 5)

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        for number in range(1, 51):
            await put(engine, f"k{number}", space="s" if number % 10 else "another")
        await put(engine, "end")
        changes = await taken(engine, since=since, last="end")
        assert [change.revision for change in changes] == [n for n in range(since + 1, 52) if n % 10]
        await engine.close()

    asyncio.run(scenario())


def test_a_watcher_that_lets_too_much_pile_up_finds_it_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)
    monkeypatch.setattr(feed, "WINDOW_COMMITS", 7)

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        watch = engine.watch("s", ALL, since=0)
        revisions = []
        for round in range(10):
            for number in range(round * 5):
                await put(engine, f"{round}/{number}")
            await put(engine, f"end of {round}")
            change = await step(watch)
            while change.key != f"end of {round}":
                revisions.append(change.revision)
                change = await step(watch)
            revisions.append(change.revision)
        assert revisions == list(range(1, engine._reader.revision() + 1))
        await leave(watch)
        await engine.close()

    asyncio.run(scenario())


def test_a_watcher_that_is_behind_and_outlived_by_the_log_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db", changes_kept=20)
        await put(engine, "first")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "first"
        for number in range(100):
            await put(engine, f"k{number}")
        await engine.sweep(limit=1)
        with pytest.raises(WatchExpiredError, match="scan again"):
            await step(watch)
        await engine.close()

    asyncio.run(scenario())


def test_a_quiet_watcher_is_not_outlived_by_the_log_of_busy_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has missed nothing, so pruning what is not its own must not end it; not even when a burst then comes at once."""
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)

    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db", changes_kept=20)
        watch = engine.watch("s", ALL, since=0)
        waiting = asyncio.ensure_future(step(watch))
        await asyncio.sleep(0)
        for number in range(100):
            await put(engine, f"k{number}", space="another")
        await engine.sweep(limit=1)
        burst = [Batch(puts=(Put(f"k{number:02d}", b"1"),)) for number in range(15)]
        await asyncio.gather(*(engine.commit("s", batch) for batch in burst))
        keys = [(await waiting).key] + [(await step(watch)).key for _ in range(14)]
        assert keys == [f"k{number:02d}" for number in range(15)]
        await leave(watch)
        await engine.close()

    asyncio.run(scenario())


def test_a_process_that_slept_while_another_pruned_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        other = SqliteEngine.open(tmp_path / "rows.db", changes_kept=5)
        await put(engine, "first")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "first"
        engine._feed._stop_timer()  # as if this process had not run
        for number in range(50):
            await put(other, f"k{number}")
        await other.sweep(limit=1)
        engine._feed.pull()
        with pytest.raises(WatchExpiredError):
            await step(watch)
        await engine.close()
        await other.close()

    asyncio.run(scenario())


def test_a_watch_from_a_revision_that_is_still_to_come_waits_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        watch = engine.watch("s", ALL, since=3)
        waiting = asyncio.ensure_future(step(watch))
        for number in range(1, 6):
            await asyncio.sleep(0)
            await put(engine, f"k{number}")
        assert await waiting == Change("k4", 4, b"1")
        assert await step(watch) == Change("k5", 5, b"1")
        await leave(watch)
        await engine.close()

    asyncio.run(scenario())


def test_nothing_polls_when_nothing_is_watched(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        assert engine._feed._timer is None
        await put(engine, "a")
        watches = [engine.watch(space, ALL, since=0) for space in ("s", "s", "another")]
        await asyncio.gather(*(step(watch) for watch in watches[:2]))
        assert engine._feed._timer is not None
        for watch in watches[:2]:
            await leave(watch)
        assert engine._feed._timer is None
        await engine.close()

    asyncio.run(scenario())


def test_a_damaged_log_is_told_to_the_watchers_and_stops_no_commit(
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

        monkeypatch.setattr(type(engine._reader), "all", staticmethod(damaged))
        assert await put(engine, "b") == 2
        with pytest.raises(UnreadableError):
            await waiting
        monkeypatch.undo()
        await engine.close()

    asyncio.run(scenario())


def test_a_watch_that_begins_after_closing_is_refused_though_another_still_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        await put(engine, "a")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "a"
        await engine.close()
        with pytest.raises(ClosedError):
            await step(engine.watch("s", ALL, since=0))
        with pytest.raises(ClosedError):
            await step(watch)

    asyncio.run(scenario())


def test_a_commit_that_only_another_tool_made_is_not_invented(tmp_path: Path) -> None:
    """Someone who changes rows by hand makes no change in the log; a watch goes on with what the log says."""

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
