"""Watches on SQLite and RocksDB that lag, and logs that were pruned meanwhile."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Put, Row, Span
from keyhouse.engines import watch_loop, watcher
from keyhouse.errors import ClosedError, WatchExpiredError
from keyhouse.testing.conformance.harness import leave, step
from tests.engines.support.embedded_engines import Embedded, Kind, awaited, both, put, taken
from tests.support.polling import loop_turns

ALL = Span()


@both
@pytest.mark.parametrize("since", [0, 1, 24, 25, 26, 49, 50])
@awaited
async def test_the_log_is_read_in_windows_without_a_gap_between_them(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int
) -> None:
    monkeypatch.setattr(kind.feed, "WINDOW_COMMITS", 5)
    async with kind.opened(tmp_path) as engine:
        for number in range(1, 51):
            await put(engine, f"k{number}", space="s" if number % 10 else "another")
        await put(engine, "end")
        changes = await taken(engine, since=since, last="end")
        assert [change.revision for change in changes] == [
            n for n in range(since + 1, 52) if n % 10
        ]


@both
@awaited
async def test_a_watcher_with_too_many_pending_changes_reads_the_log(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)
    monkeypatch.setattr(kind.feed, "WINDOW_COMMITS", 7)
    async with kind.opened(tmp_path) as engine:
        watch = engine.watch("s", ALL, since=0)
        revisions = []
        for round in range(10):
            for number in range(round * 5):
                await put(engine, f"{round}/{number}")
            last = await put(engine, f"end of {round}")
            change = await step(watch)
            while change.key != f"end of {round}":
                revisions.append(change.revision)
                change = await step(watch)
            revisions.append(change.revision)
        assert last is not None
        assert revisions == list(range(1, last + 1))
        await leave(watch)


class LookedUp:
    """Counts the rows that the watchers of an engine read."""

    def __init__(self, engine: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[str] = []
        stored = engine.feed.stored

        def noting(space: str, key: str) -> Row | None:
            self.keys.append(key)
            return stored(space, key)

        monkeypatch.setattr(engine.feed, "stored", noting)


@both
@awaited
async def test_a_key_that_was_written_often_is_looked_up_once(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its pending changes read the row: 10,000 times, of up to 380 KiB, in one step."""
    async with kind.opened(tmp_path) as engine:
        watch = engine.watch("s", ALL, since=0)
        await put(engine, "first")
        assert (await step(watch)).key == "first"
        looked_up = LookedUp(engine, monkeypatch)
        for number in range(50):
            await put(engine, f"often {number % 2}")
        assert [(await step(watch)).revision for _ in range(2)] == [50, 51]
        assert looked_up.keys == ["often 0", "often 1"]
        await leave(watch)


@both
@awaited
async def test_a_commit_is_read_once_for_all_watchers_that_it_wakes(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kind.opened(tmp_path) as engine:
        await put(engine, "first")
        watches = [engine.watch("s", ALL, since=1) for _ in range(20)]
        steps = [asyncio.create_task(step(watch)) for watch in watches]
        await loop_turns(100)
        looked_up = LookedUp(engine, monkeypatch)
        await put(engine, "second")
        assert {(await each).revision for each in steps} == {2}
        assert looked_up.keys == ["second"]
        for watch in watches:
            await leave(watch)


@both
@awaited
async def test_a_watcher_that_finds_only_outdated_changes_lets_others_run(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kind.opened(tmp_path) as engine:
        watch = engine.watch("s", ALL, since=0)
        await put(engine, "first")
        assert (await step(watch)).key == "first"
        turn = 0
        looked_up: Counter[int] = Counter()

        def outdated(space: str, changed: watch_loop.ChangedKey) -> None:
            looked_up[turn] += 1

        monkeypatch.setattr(engine.feed, "newest", outdated)
        for number in range(3 * watch_loop.SKIPPED_MAX):
            await put(engine, f"k{number}")
        waiting = asyncio.create_task(step(watch))
        for turn in range(10):  # noqa: B007  # it is noted above
            await asyncio.sleep(0)
        assert sum(looked_up.values()) == 3 * watch_loop.SKIPPED_MAX
        assert max(looked_up.values()) == watch_loop.SKIPPED_MAX
        waiting.cancel()


@both
@awaited
async def test_a_lagging_watcher_expires_when_its_position_is_pruned(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)
    async with kind.opened(tmp_path, changes_kept=20) as engine:
        await put(engine, "first")
        watch = engine.watch("s", ALL, since=0)
        assert (await step(watch)).key == "first"
        for number in range(100):
            await put(engine, f"k{number}")
        await engine.sweep(limit=1)
        with pytest.raises(WatchExpiredError, match="scan again") as refusal:
            await step(watch)
        assert refusal.value.fields["oldest"] == 82


@both
@awaited
async def test_a_quiet_watcher_survives_pruning_of_other_spaces(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It missed nothing, so pruning other spaces must not end it, not even before a burst."""
    monkeypatch.setattr(watcher, "PENDING_MAX", 10)
    async with kind.opened(tmp_path, changes_kept=20) as engine:
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


@both
@awaited
async def test_a_watch_can_start_at_the_oldest_change_after_pruning_and_reopening(
    kind: Kind, tmp_path: Path
) -> None:
    async with kind.opened(tmp_path, changes_kept=5) as engine:
        for number in range(1, 21):
            await put(engine, f"k{number}")
        await engine.sweep(limit=1)
    async with kind.opened(tmp_path, changes_kept=5) as engine:
        await put(engine, "end")
        assert [change.revision for change in await taken(engine, since=15, last="end")] == list(
            range(16, 22)
        )
        with pytest.raises(WatchExpiredError):
            await step(engine.watch("s", ALL, since=14))


@both
@awaited
async def test_a_watch_started_after_close_is_rejected(kind: Kind, tmp_path: Path) -> None:
    engine = kind.open(tmp_path)
    await put(engine, "a")
    watch = engine.watch("s", ALL, since=0)
    assert (await step(watch)).key == "a"
    await engine.close()
    with pytest.raises(ClosedError):
        await step(engine.watch("s", ALL, since=0))
    with pytest.raises(ClosedError):
        await step(watch)
