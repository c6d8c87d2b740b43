"""A move that follows the changes of its source until the switch is set."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import (
    FullError,
    UnavailableError,
)
from keyhouse.store import MoveProgress, move
from keyhouse.store.transfer import follow
from keyhouse.testing.faults import FaultyEngine, fail, meanwhile
from tests.store.support.filled_engines import (
    closing,
    contents,
    digests,
    fill,
    opened,
    until_stored,
)
from tests.support.polling import loop_turns, until


@pytest.mark.parametrize(
    ("source", "target"), [("sqlite", "rocksdb"), ("rocksdb", "sqlite"), ("memory", "rocksdb")]
)
def test_changes_are_followed_while_writers_write_until_the_switch(
    source: str, target: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        clock = ManualClock()
        one, other = opened(source, tmp_path / "a", clock), opened(target, tmp_path / "b", clock)
        async with closing(one, other):
            await fill(one, rows=300)
            switch, stop = asyncio.Event(), asyncio.Event()
            reports: list[MoveProgress] = []
            moving = asyncio.ensure_future(
                move(one, other, name="one", switch=switch, on_progress=reports.append)
            )

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
                    await asyncio.sleep(0)
                return number

            writers = [asyncio.ensure_future(write(writer)) for writer in range(4)]
            await until(
                lambda: (
                    moving.done()
                    or any(report.phase == "following" and report.rows > 500 for report in reports)
                )
            )
            assert not moving.done()
            stop.set()
            total = sum(await asyncio.gather(*writers))
            await one.commit("s0", Batch(puts=(Put("the last", b"1"),)))
            await until_stored(other, "s0", "the last", b"1")
            await one.commit("s9", Batch(puts=(Put("newest space", b"1"),)))
            await until_stored(other, "s9", "newest space", b"1")
            followed = reports[-1].written
            switch.set()
            moved = await moving
            assert moved.written <= followed + 1
            assert moved.passes == 2, "after following, the comparison found nothing to do"
            assert await digests(one) == await digests(other)
            counts = [row for space in range(4) for row in await other.read(f"s{space}", ["count"])]
            assert sum(int(row.value) for row in counts if row is not None) == total

    asyncio.run(scenario())


def test_changes_that_were_pruned_before_they_were_followed_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        behind_the_revision_that_the_watch_begins_from = meanwhile(
            3, prune, call="scan", after=True
        )
        pruned = FaultyEngine(source, behind_the_revision_that_the_watch_begins_from)
        moving = asyncio.ensure_future(move(pruned, target, name="one", switch=switch))
        await until_stored(target, "s", "k49", b"1")
        await source.commit("s", Batch(puts=(Put("after", b"1"),)))
        await until_stored(target, "s", "after", b"1")
        switch.set()
        await moving
        assert await contents(source) == await contents(target)

    asyncio.run(scenario())


def test_a_broken_watch_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "DISCOVER_SECONDS", 0.01)

    async def scenario() -> None:
        inner, target = MemoryEngine(), MemoryEngine()
        await fill(inner)

        source = FaultyEngine(
            inner, *(fail(at, UnavailableError, call="watch") for at in range(1, 6))
        )
        switch = asyncio.Event()
        moving = asyncio.ensure_future(move(source, target, name="one", switch=switch))
        await until(lambda: source.calls["watch"] >= 8)
        await inner.commit("s1", Batch(puts=(Put("after", b"1"),)))
        await until_stored(target, "s1", "after", b"1")
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
        await until_stored(inner, "s0", "k00000", b'{"n":0}')
        await loop_turns(50)
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
        await loop_turns(200)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
