"""Regression tests of bugs that the model test found."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from keyhouse.clock import ManualClock, UlidSource
from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema import FoldResult, Log, LogState, Record
from keyhouse.store import Store, append, fold, verify
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
        await append(store, later, Played("a"), user="u")
        assert await fold(store, later, user="u") == 1
        clock.advance(seconds=-10)
        drawn = []
        for seed in range(4):
            store.ids = UlidSource(clock, seed=seed)
            drawn.append((await append(store, later, Played("a"), user="u")).key)
        assert drawn == sorted(set(drawn))
        assert await fold(store, later, user="u") == 4

    run_story(story)


def test_the_state_of_a_deferred_log_may_have_fields_that_go_by_position() -> None:
    """`through` was passed as the first field of the state's type, which may be another one."""

    class State(LogState):
        count: int = 0

    assert msgspec.structs.fields(State)[0].name == "count"
    state = Record(State, "state:{user}")
    log = Log(
        Played,
        "log:{user}:{at:ulid}",
        state=state,
        fold=lambda s, e, f: FoldResult(State(through="")),
        deferred=True,
    )
    assert log.deferred
