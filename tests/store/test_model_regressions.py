"""Regression tests of bugs that the model test found."""

import asyncio
from collections.abc import Awaitable, Callable

from keyhouse.clock import ManualClock, UlidSource
from keyhouse.engines.memory import MemoryEngine
from keyhouse.store import Store, verify
from tests.model.keyspace import LOGS, SCHEMA, Played

Story = Callable[[Store, ManualClock], Awaitable[None]]


def run_story(story: Story) -> None:
    async def run() -> None:
        clock = ManualClock()
        store = Store(SCHEMA, MemoryEngine(clock), "space")
        await story(store, clock)
        assert [finding async for finding in verify(store)] == []

    asyncio.run(run())


def test_two_sources_with_slow_clocks_get_different_positions() -> None:
    """After the clock stepped back, an id is the next one after the last folded. A second process
    generated the same id and got a RevisionError until the log was folded.
    """

    async def story(store: Store, clock: ManualClock) -> None:
        later = LOGS["later"]
        await store.append(later, Played("a"), user="u")
        clock.advance(seconds=-10)
        drawn = []
        for seed in range(4):
            store.ids = UlidSource(clock, seed=seed)
            drawn.append((await store.append(later, Played("a"), user="u")).key)
        assert drawn == sorted(set(drawn))

    run_story(story)
