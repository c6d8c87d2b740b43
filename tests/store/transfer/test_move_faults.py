"""A move that is killed or hits faults finishes when it is run again."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import (
    ConflictError,
    FullError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store import move
from keyhouse.store.transfer import bulk_writer, reconcile
from keyhouse.store.transfer.move import MARK_KEY
from keyhouse.testing.faults import FaultyEngine, Killed, die, fail, meanwhile
from tests.store.support.filled_engines import contents, fill, opened

# Killed, and run again


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("late", [False, True])
def test_a_move_killed_at_any_call_is_run_again_and_finishes(side: str, late: bool) -> None:
    async def scenario() -> None:
        killed = 0
        while True:
            clock = ManualClock()
            source, target = MemoryEngine(clock), MemoryEngine(clock)
            await fill(source, rows=15)
            dying = FaultyEngine(
                source if side == "source" else target, die(killed + 1, after=late)
            )
            try:
                await move(
                    dying if side == "source" else source,
                    dying if side == "target" else target,
                    name="one",
                )
            except Killed:
                killed += 1
            else:
                break
            there = sum(
                [
                    len(rows)
                    for space, rows in (await contents(target)).items()
                    if space != MARK_SPACE
                ]
            )
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
                    break  # all its calls are now used to read what is there already
        assert there[1] > 1_000
        moved = await move(source, target, name="one")
        assert moved.rows == 12_000
        assert moved.written == 12_000 - (there[-1] - 1)
        assert await contents(source) == await contents(target)
        await target.close()

    asyncio.run(scenario())


def test_changes_at_the_source_since_the_kill_are_moved_too() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source, target = MemoryEngine(clock), MemoryEngine(clock)
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(12)), name="one")
        assert any([space != MARK_SPACE async for space in target.spaces()])
        await source.commit(
            "s0", Batch(puts=(Put("k00001", b'"changed"'),), deletes=("k00002", "k00003"))
        )
        await source.commit("new", Batch(puts=(Put("a", b"1"),)))
        await move(source, target, name="one")
        assert await contents(source) == await contents(target)

    asyncio.run(scenario())


# Faults, time, and writers that do not stop


def test_an_engine_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_writer, "PAUSE_SECONDS", 0.0)

    async def scenario() -> None:
        source, inner = MemoryEngine(), MemoryEngine()
        await source.commit("s", Batch(puts=(Put("a", b"1"),)))
        await inner.commit(
            MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"one","started":1}'),))
        )
        away = [
            fail(1, UnavailableError),
            fail(2, UnknownOutcomeError, after=True),
            fail(3, UnavailableError),
        ]
        await move(source, FaultyEngine(inner, *away), name="one")
        assert await contents(source) == await contents(inner)
        with pytest.raises(FullError):
            await source.commit("s", Batch(puts=(Put("b", b"1"),)))
            await inner.commit(
                MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"one","started":1}'),))
            )
            await move(source, FaultyEngine(inner, fail(1, FullError)), name="one")
        with pytest.raises(UnavailableError):
            await move(
                source,
                FaultyEngine(inner, *(fail(at, UnavailableError) for at in range(1, 7))),
                name="one",
            )
        await move(source, inner, name="one")
        assert await contents(source) == await contents(inner)

    asyncio.run(scenario())


def test_rows_that_expire_during_the_move_are_not_differences() -> None:
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
                await inner.commit(
                    "s2", Batch(adds=(Add(f"n{scan % 4}", 1),), deletes=(f"k{scan:05d}",))
                )

        source = FaultyEngine(inner, meanwhile(None, write, call="scan", after=True))
        moved = await move(source, target, name="one")
        assert moved.passes > 2
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_a_source_that_is_always_written_fails_the_move() -> None:
    async def scenario() -> None:
        inner, target = MemoryEngine(), MemoryEngine()
        await fill(inner)

        async def write() -> None:
            await inner.commit("s2", Batch(adds=(Add("k00000n", 1),)))

        with pytest.raises(ConflictError, match="stop its writers"):
            await move(
                FaultyEngine(inner, meanwhile(None, write, call="scan", after=True)),
                target,
                name="one",
            )
        await move(inner, target, name="one")
        assert await contents(inner) == await contents(target)

    asyncio.run(scenario())


def test_engines_that_agree_in_rows_and_not_in_digests_are_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "same", lambda wanted, there: True)

    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(UnreadableError, match="digests"):
            await move(source, target, name="one")

    asyncio.run(scenario())
