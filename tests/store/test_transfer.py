"""A move: every row arrives, whatever it is called, whoever kills it, whoever writes meanwhile; and it is proved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Add, Batch, Engine, Put, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import (
    ConflictError,
    FullError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
    UsageError,
)
from keyhouse.store import Moved, Progress, digest, follow, move, reconcile, writes
from keyhouse.store.transfer import MARK_KEY, MARK_SPACE
from keyhouse.store.walking import PAGE_BYTES, PAGE_ROWS, rows
from keyhouse.testing.conformance.poison import KEYS, VALUES
from keyhouse.testing.conformance.spaces import HOSTILE
from keyhouse.testing.faults import FaultyEngine, Killed, die, fail, meanwhile

ENGINES = ("memory", "sqlite", "rocksdb")


def opened(kind: str, folder: Path, clock: Clock, **options: Any) -> Engine:
    match kind:
        case "memory":
            return MemoryEngine(clock, **options)
        case "sqlite":
            return SqliteEngine.open(folder / "rows.db", clock=clock, **options)
    return RocksdbEngine.open(folder / "rows", clock=clock, **options)


@asynccontextmanager
async def closing(*engines: Engine) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for engine in engines:
            await engine.close()


async def fill(engine: Engine, *, spaces: int = 3, rows: int = 40) -> None:
    """Spaces of different sizes, every third row with an expiry."""
    later = engine.clock.now() + 1_000_000
    for space in range(spaces):
        puts = [
            Put(f"k{number:05d}", b'{"n":%d}' % number, later + number if number % 3 == 0 else None)
            for number in range(rows * (space + 1))
        ]
        for start in range(0, len(puts), 500):
            await engine.commit(f"s{space}", Batch(puts=tuple(puts[start : start + 500])))


async def contents(engine: Engine) -> dict[str, dict[str, tuple[bytes, int | None]]]:
    return {
        space: {row.key: (row.value, row.expires) async for row in rows(engine, space)}
        async for space in engine.spaces()
    }


async def digests(engine: Engine) -> dict[str, tuple[int, str]]:
    found = {space: await digest(engine, space) async for space in engine.spaces()}
    return {space: (each.rows, each.text()) for space, each in found.items()}


# Everything arrives


def test_a_store_with_hostile_names_goes_round_through_all_engines(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        first, last = MemoryEngine(clock), MemoryEngine(clock)
        file, folder = opened("sqlite", tmp_path, clock), opened("rocksdb", tmp_path, clock)
        async with closing(file, folder):
            for space in HOSTILE:
                await first.commit(space, Batch(puts=(Put(f"key of {space}", b"1"),)))
            keys = list(dict.fromkeys(KEYS))
            for number, key in enumerate(keys):
                expires = clock.now() + 1_000 + number if number % 5 == 0 else None
                await first.commit("poison", Batch(puts=(Put(key, VALUES[number % len(VALUES)], expires),)))
            await first.commit("poison", Batch(puts=(Put("expired", b"1", clock.now()),)))
            await first.commit("gone", Batch(puts=(Put("expired", b"1", clock.now()),)))
            expected, whole = await digests(first), await contents(first)
            stations = [first, file, folder, last]
            for source, target in pairwise(stations):
                moved = await move(source, target, name="before")
                assert {space.space: (space.rows, space.digest) for space in moved.spaces} == expected
                assert moved.rows == moved.written == len(keys) + len(HOSTILE)
                assert await contents(target) == whole
                assert await digests(target) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("source", ENGINES)
@pytest.mark.parametrize("target", ENGINES)
def test_a_move_is_proved_by_counts_and_digests_of_both(source: str, target: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        one, other = opened(source, tmp_path / "a", clock), opened(target, tmp_path / "b", clock)
        async with closing(one, other):
            await fill(one, rows=700)
            reports: list[Progress] = []
            moved = await move(one, other, name="one", on_progress=reports.append)
            assert moved.rows == moved.written == 700 + 1_400 + 2_100
            assert moved.passes == 2
            assert await digests(one) == await digests(other)
            assert await contents(one) == await contents(other)
            assert [report.phase for report in reports] == sorted(report.phase for report in reports)
            assert [report.rows for report in reports if report.phase == "copying"][-1] == 4_200
            assert [report.rows for report in reports if report.phase == "verifying"][-1] == 4_200
            assert max(report.written for report in reports) == 4_200

    asyncio.run(scenario())


def test_an_empty_store_is_moved(tmp_path: Path) -> None:
    assert asyncio.run(move(MemoryEngine(), MemoryEngine(), name="nothing")) == Moved(0, 0, 2, [])


def test_a_digest_tells_every_difference_between_two_spaces() -> None:
    async def of(*puts: Put) -> str:
        engine = MemoryEngine(ManualClock(0))
        await engine.commit("s", Batch(puts=puts))
        return (await digest(engine, "s")).text()

    async def scenario() -> None:
        stores = [
            (),
            (Put("a", b"1"),),
            (Put("a", b"2"),),
            (Put("b", b"1"),),
            (Put("a", b"1", 1_000),),
            (Put("a", b"1", 1_001),),
            (Put("a", b"11"),),
            (Put("a1", b"1"),),
            (Put("a", b"1"), Put("b", b"1")),
            (Put("a", b"1b1"),),
        ]
        assert len({await of(*puts) for puts in stores if puts}) == len(stores) - 1
        engine = MemoryEngine(ManualClock(0))
        assert (await digest(engine, "s")).rows == 0

    asyncio.run(scenario())


def test_commits_keep_to_what_the_target_takes() -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        target = FaultyEngine(MemoryEngine(source.clock), rows=7, bytes=1_000)
        for number in range(100):
            await source.commit("s", Batch(puts=(Put(f"k{number:03d}", b"x" * (number * 9)),)))
        await move(source, target, name="wide")
        assert await contents(source) == await contents(target)
        sizes = [len(batch.puts) + len(batch.deletes) for batch in target.batches]
        assert max(sizes) == 7

    asyncio.run(scenario())


def test_pages_are_small_where_values_are_large() -> None:
    async def scenario() -> None:
        inner = MemoryEngine()
        for number in range(40):
            await inner.commit("large", Batch(puts=tuple(Put(f"{number}/{part}", b"x" * 300_000) for part in range(5))))
        await inner.commit("small", Batch(puts=tuple(Put(f"k{number:05d}", b"1") for number in range(5_000))))
        engine = FaultyEngine(inner)
        assert len([row async for row in rows(engine, "large")]) == 200
        assert max(engine.limits) * 300_000 <= 2 * PAGE_BYTES
        engine.limits.clear()
        assert len([row async for row in rows(engine, "small")]) == 5_000
        assert max(engine.limits) == PAGE_ROWS

    asyncio.run(scenario())


# Killed, and run again


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("late", [False, True])
def test_killed_at_any_call_it_is_run_again_and_arrives(side: str, late: bool) -> None:
    async def scenario() -> None:
        killed = 0
        while True:
            clock = ManualClock()
            source, target = MemoryEngine(clock), MemoryEngine(clock)
            await fill(source, rows=15)
            dying = FaultyEngine(source if side == "source" else target, die(killed + 1, after=late))
            try:
                await move(dying if side == "source" else source, dying if side == "target" else target, name="one")
            except Killed:
                killed += 1
            else:
                break
            there = sum([len(rows) for space, rows in (await contents(target)).items() if space != MARK_SPACE])
            moved = await move(source, target, name="one")
            assert moved.rows == 90
            assert moved.written == 90 - there, "what was there is not written again"
            assert await contents(source) == await contents(target)
        assert killed > 10

    asyncio.run(scenario())


def test_killed_again_and_again_it_comes_further_each_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source, target = MemoryEngine(clock), opened("rocksdb", tmp_path, clock)
        await fill(source, rows=2_000)
        there, runs = [0], 0
        while True:
            runs += 1
            try:
                await move(source, FaultyEngine(target, die(20)), name="one")
                break
            except Killed:
                await target.close()
                target = opened("rocksdb", tmp_path, clock)
                there.append(sum([len(rows) for rows in (await contents(target)).values()]))
                assert there[-1] >= there[-2]
                if runs > 3 and there[-1] == there[-2]:
                    break  # it has come to where reading what is there takes as many calls as it has
        assert there[1] > 1_000
        moved = await move(source, target, name="one")
        assert moved.rows == 12_000
        assert moved.written == 12_000 - (there[-1] - 1)
        assert await contents(source) == await contents(target)
        await target.close()

    asyncio.run(scenario())


def test_what_changed_at_the_source_since_the_kill_arrives_as_well() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source, target = MemoryEngine(clock), MemoryEngine(clock)
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(12)), name="one")
        assert any([space != MARK_SPACE async for space in target.spaces()])
        await source.commit("s0", Batch(puts=(Put("k00001", b'"changed"'),), deletes=("k00002", "k00003")))
        await source.commit("new", Batch(puts=(Put("a", b"1"),)))
        await move(source, target, name="one")
        assert await contents(source) == await contents(target)

    asyncio.run(scenario())


# Whose the target is


def test_a_second_run_finds_the_same_and_writes_nothing() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        first = await move(source, target, name="one")
        revision = (await target.scan("s0", Span(), limit=1)).revision
        again = await move(source, target, name="one")
        assert (again.rows, again.spaces, again.written) == (first.rows, first.spaces, 0)
        assert (await target.scan("s0", Span(), limit=1)).revision == revision

    asyncio.run(scenario())


@pytest.mark.parametrize("theirs", [Put("other", b"1"), Put("k00001", b"7"), Put("k00001", b'{"n":1}', 2**52)])
def test_a_target_with_other_rows_is_refused_and_left_alone(theirs: Put) -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        await fill(target)
        await target.commit("s0", Batch(puts=(theirs,)))
        before = await contents(target)
        with pytest.raises(UsageError, match="holds other rows") as refusal:
            await move(source, target, name="one")
        assert refusal.value.fields["differing_rows"] >= 1  # type: ignore[operator]
        assert await contents(target) == before

    asyncio.run(scenario())


def test_the_target_of_another_move_is_refused() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(5)), name="one")
        with pytest.raises(UsageError, match="another source") as refusal:
            await move(source, target, name="two")
        assert refusal.value.fields["begun_from"] == "one"

    asyncio.run(scenario())


def test_a_target_that_was_not_moved_to_the_end_is_no_source() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(5)), name="one")
        with pytest.raises(UsageError, match="not ended"):
            await move(target, MemoryEngine(), name="half")

    asyncio.run(scenario())


def test_a_mark_that_can_not_be_read_is_said_so() -> None:
    async def scenario() -> None:
        target = MemoryEngine()
        await target.commit(MARK_SPACE, Batch(puts=(Put(MARK_KEY, b"7"),)))
        with pytest.raises(UnreadableError):
            await move(MemoryEngine(), target, name="one")

    asyncio.run(scenario())


def test_of_two_moves_that_begin_at_the_same_moment_one_is_told() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()

        async def begin() -> None:
            await target.commit(MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"x","started":1}'),)))

        with pytest.raises(ConflictError, match="just begun"):
            await move(source, FaultyEngine(target, meanwhile(1, begin, call="commit")), name="one")

    asyncio.run(scenario())


# Faults, time, and writers that do not stop


def test_an_engine_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "PAUSE_SECONDS", 0.0)

    async def scenario() -> None:
        source, inner = MemoryEngine(), MemoryEngine()
        await source.commit("s", Batch(puts=(Put("a", b"1"),)))
        await inner.commit(MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"one","started":1}'),)))
        away = [fail(1, UnavailableError), fail(2, UnknownOutcomeError, after=True), fail(3, UnavailableError)]
        await move(source, FaultyEngine(inner, *away), name="one")
        assert await contents(source) == await contents(inner)
        with pytest.raises(FullError):
            await source.commit("s", Batch(puts=(Put("b", b"1"),)))
            await inner.commit(MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"one","started":1}'),)))
            await move(source, FaultyEngine(inner, fail(1, FullError)), name="one")
        with pytest.raises(UnavailableError):
            await move(source, FaultyEngine(inner, *(fail(at, UnavailableError) for at in range(1, 7))), name="one")
        await move(source, inner, name="one")
        assert await contents(source) == await contents(inner)

    asyncio.run(scenario())


def test_rows_that_expire_on_the_way_are_no_difference() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        inner, target = MemoryEngine(clock), MemoryEngine(clock)
        for number in range(300):
            expires = clock.now() + 1 + number % 200 if number % 2 else None
            await inner.commit("s", Batch(puts=(Put(f"k{number:03d}", b"1", expires),)))

        async def tick() -> None:
            clock.advance(milliseconds=7)

        ticking = meanwhile(None, tick, call="scan", after=True)
        moved = await move(FaultyEngine(inner, ticking), FaultyEngine(target, ticking), name="one")
        assert 150 <= moved.rows < 300
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_a_source_that_is_written_for_a_while_is_compared_until_it_is_the_same() -> None:
    async def scenario() -> None:
        inner, target = MemoryEngine(), MemoryEngine()
        await fill(inner)

        async def write() -> None:
            scan = source.calls["scan"]
            if scan < 12:
                await inner.commit("s2", Batch(adds=(Add(f"n{scan % 4}", 1),), deletes=(f"k{scan:05d}",)))

        source = FaultyEngine(inner, meanwhile(None, write, call="scan", after=True))
        moved = await move(source, target, name="one")
        assert moved.passes > 2
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_a_source_that_is_always_written_is_told_to_stop_its_writers() -> None:
    async def scenario() -> None:
        inner, target = MemoryEngine(), MemoryEngine()
        await fill(inner)

        async def write() -> None:
            await inner.commit("s2", Batch(adds=(Add("k00000n", 1),)))

        with pytest.raises(ConflictError, match="stop its writers"):
            await move(FaultyEngine(inner, meanwhile(None, write, call="scan", after=True)), target, name="one")
        await move(inner, target, name="one")
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_engines_that_agree_in_rows_and_not_in_digests_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_same", lambda wanted, there: True)

    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(UnreadableError, match="digests"):
            await move(source, target, name="one")

    asyncio.run(scenario())


# Following


async def until(engine: Engine, space: str, key: str, value: bytes) -> None:
    async with asyncio.timeout(20):
        while True:
            (row,) = await engine.read(space, [key])
            if row is not None and row.value == value:
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("source", "target"), [("sqlite", "rocksdb"), ("rocksdb", "sqlite"), ("memory", "rocksdb")])
def test_changes_are_followed_while_writers_write_until_the_switch(source: str, target: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        clock = ManualClock()
        one, other = opened(source, tmp_path / "a", clock), opened(target, tmp_path / "b", clock)
        async with closing(one, other):
            await fill(one, rows=300)
            switch, stop = asyncio.Event(), asyncio.Event()
            reports: list[Progress] = []
            moving = asyncio.ensure_future(move(one, other, name="one", switch=switch, on_progress=reports.append))

            async def write(writer: int) -> int:
                number = 0
                while not stop.is_set():
                    number += 1
                    space = f"s{(writer + number) % 4}"  # s3 is new
                    batch = Batch(
                        puts=(Put(f"k{number % 50:05d}", b'"%d of %d"' % (number, writer)),),
                        deletes=(f"k{(number + writer) % 90 + 100:05d}",),
                        adds=(Add("count", 1),),
                    )
                    assert await one.commit(space, batch) is not None
                    await asyncio.sleep(0.001)
                return number

            writers = [asyncio.ensure_future(write(writer)) for writer in range(4)]
            while not any(report.phase == "following" and report.rows > 500 for report in reports):
                await asyncio.sleep(0.01)
                assert not moving.done()
            stop.set()
            total = sum(await asyncio.gather(*writers))
            await one.commit("s0", Batch(puts=(Put("the last", b"1"),)))
            await until(other, "s0", "the last", b"1")
            await one.commit("s9", Batch(puts=(Put("newest space", b"1"),)))
            await until(other, "s9", "newest space", b"1")
            followed = reports[-1].written
            switch.set()
            moved = await moving
            assert moved.written <= followed + 1
            assert moved.passes == 2, "after following, the comparison found nothing to do"
            assert await digests(one) == await digests(other)
            counts = [row for space in range(4) for row in await other.read(f"s{space}", ["count"])]
            assert sum(int(row.value) for row in counts if row is not None) == total

    asyncio.run(scenario())


def test_changes_that_were_pruned_before_they_were_followed_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "DISCOVER_SECONDS", 0.01)

    async def scenario() -> None:
        clock = ManualClock()
        source, target = MemoryEngine(clock, changes_kept=5), MemoryEngine(clock)
        await source.commit("s", Batch(puts=(Put("a", b"0"),)))

        async def prune() -> None:
            for number in range(50):
                await source.commit("s", Batch(puts=(Put(f"k{number}", b"1"),), deletes=("a",)))
            await source.sweep(limit=1)

        switch = asyncio.Event()
        behind_the_revision_that_the_watch_begins_from = meanwhile(3, prune, call="scan", after=True)
        pruned = FaultyEngine(source, behind_the_revision_that_the_watch_begins_from)
        moving = asyncio.ensure_future(move(pruned, target, name="one", switch=switch))
        await until(target, "s", "k49", b"1")
        await source.commit("s", Batch(puts=(Put("after", b"1"),)))
        await until(target, "s", "after", b"1")
        switch.set()
        await moving
        assert await contents(source) == await contents(target)

    asyncio.run(scenario())


def test_a_watch_that_breaks_off_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "DISCOVER_SECONDS", 0.01)

    async def scenario() -> None:
        inner, target = MemoryEngine(), MemoryEngine()
        await fill(inner)

        source = FaultyEngine(inner, *(fail(at, UnavailableError, call="watch") for at in range(1, 6)))
        switch = asyncio.Event()
        moving = asyncio.ensure_future(move(source, target, name="one", switch=switch))
        while source.calls["watch"] < 8:
            await asyncio.sleep(0.005)
        await inner.commit("s1", Batch(puts=(Put("after", b"1"),)))
        await until(target, "s1", "after", b"1")
        switch.set()
        await moving
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_a_target_that_fails_while_following_ends_the_move_with_its_error() -> None:
    async def scenario() -> None:
        source, inner = MemoryEngine(), MemoryEngine()
        await fill(source, spaces=1, rows=1)
        target = FaultyEngine(inner)
        moving = asyncio.ensure_future(move(source, target, name="one", switch=asyncio.Event()))
        await until(inner, "s0", "k00000", b'{"n":0}')
        await asyncio.sleep(0.05)
        target.faults.append(fail(target.calls["commit"] + 1, FullError))
        await source.commit("s0", Batch(puts=(Put("after", b"1"),)))
        with pytest.raises(FullError):
            async with asyncio.timeout(20):
                await moving
        await move(source, inner, name="one")
        assert await contents(source) == await contents(inner)

    asyncio.run(scenario())


def test_a_follower_that_is_cancelled_leaves_nothing_running() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        moving = asyncio.ensure_future(move(source, target, name="one", switch=asyncio.Event()))
        await asyncio.sleep(0.1)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
