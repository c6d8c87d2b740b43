"""Each event of a log is pruned once, and never before it is folded."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from keyhouse.clock import UlidSource
from keyhouse.schema import Counter, Log, Schema, Space
from keyhouse.store import Store
from keyhouse.testing.faults import FaultyEngine, Killed, fail, meanwhile
from tests.store.support.harness import Harness, clean, everywhere, played
from tests.store.support.library_schema import (
    HEARD,
    LATER,
)
from tests.store.support.log_events import events, heard, later_total, pruned, total


async def filled(harness: Harness, *, users: tuple[str, ...] = ("ann",), count: int = 10) -> Store:
    """Append one event a second for each user."""
    store = harness.store()
    for number in range(count):
        for user in users:
            await store.append(HEARD, heard(number, user=user))
        harness.clock.advance(seconds=1)
    return store


@everywhere
async def test_pruning_deletes_only_older_events(harness: Harness) -> None:
    store = await filled(harness)
    start = harness.clock.now() - 10_000
    assert await pruned(store, before=start + 4_000) == [4]
    assert await events(store) == [4, 5, 6, 7, 8, 9]
    assert await pruned(store, before=start + 4_000) == [] and await pruned(store, before=0) == []
    assert await pruned(store, before=-5) == []
    assert await total(store) == sum(range(10)), "what was folded stays"
    await clean(store)


@everywhere
async def test_pruning_keeps_the_newest_of_each_stream(harness: Harness) -> None:
    store = await filled(harness, users=("ann", "bob"))
    await store.append(HEARD, heard(1, user="zoe"))
    now = harness.clock.advance(seconds=100)
    assert await pruned(store, before=now, keep=3) == [7, 14]
    for user in ("ann", "bob"):
        assert await events(store, user=user) == [7, 8, 9]
    assert await events(store, user="zoe") == [1], "a stream with fewer than are kept is left alone"
    assert await pruned(store, before=now, user="bob") == [3]
    assert await events(store, user="bob") == [] and await events(store, user="ann") == [7, 8, 9]
    await clean(store)


@everywhere
async def test_pruning_is_in_bounded_commits_and_tells_how_far_it_is(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    for number in range(120):
        await store.append(HEARD, heard(number))
    now = harness.clock.advance(seconds=10)
    assert await pruned(store, before=now) == [50, 100, 120]
    assert max(len(batch.deletes) for batch in engine.batches) == 50


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_prune_that_is_killed_at_any_commit_prunes_and_folds_exactly_once(after: bool) -> None:
    async def story(harness: Harness) -> None:
        clear = 0
        for at in range(1, 14):
            space = f"space-{at}"
            store = harness.store(space=space)
            for number in range(120):
                await store.append(LATER, heard(number, user="ab"[number % 2]))
            now = harness.clock.advance(seconds=10)
            engine = harness.faulty(fail(at, Killed, after=after))
            try:
                await pruned(harness.store(space=space, engine=engine), LATER, before=now, keep=3)
            except Killed:
                await pruned(store, LATER, before=now, keep=3)
            else:
                clear += 1
            for user in "ab":
                mine = [number for number in range(120) if "ab"[number % 2] == user]
                assert await later_total(store, user) == sum(mine)
                assert await events(store, LATER, user=user) == mine[-3:]
            await clean(store)
        assert 0 < clear < 13, "some runs were killed at each of their commits, some came through"

    asyncio.run(played(story, "memory", Path()))


@everywhere
async def test_an_event_appended_during_pruning_is_folded_and_stored(
    harness: Harness,
) -> None:
    store = await filled(harness)
    now = harness.clock.now()

    async def arrive() -> None:
        await store.append(HEARD, heard(100))

    for at in (1, 2):
        engine = FaultyEngine(harness.engine, meanwhile(at, arrive, call="scan", after=True))
        await pruned(harness.store(engine=engine), before=now - 2_000)
    assert await events(store) == [8, 9, 100, 100] and await total(store) == sum(range(10)) + 200


@everywhere
async def test_streams_whose_names_begin_each_other_are_pruned_apart(harness: Harness) -> None:
    store = await filled(harness, users=("a", "a:b", "ab", "a%"), count=3)
    now = harness.clock.advance(seconds=5)
    assert await pruned(store, before=now, user="a") == [3]
    for user in ("a:b", "ab", "a%"):
        assert await events(store, user=user) == [0, 1, 2]


@everywhere
async def test_a_log_of_one_stream_is_pruned_too(harness: Harness) -> None:
    class Tick(msgspec.Struct):
        n: int

    tick, seen = Log(Tick, "tick:{at:ulid}", name="tick"), Counter("seen", name="seen")
    store = Store(
        Schema("ticks", tick, seen, space=Space("x")),
        harness.engine,
        "s",
        ids=UlidSource(harness.clock),
    )
    for n in range(3):
        await store.append(tick, Tick(n))
    assert await pruned(store, tick, before=harness.clock.now() + 1, keep=1) == [2]
