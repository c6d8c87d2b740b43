"""Bugs that the harder tests found, each kept as the shortest call that shows it, with its story."""

import asyncio

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.store import Store, append, prune
from tests.store.workload import SALE, SALES, SHOP, Sale


def test_pruning_keeps_all_events_of_a_stream_that_has_fewer_than_it_keeps() -> None:
    """Found by killing writers: the newest `keep` events bounded what may go, but only when there were as many. A stream
    with fewer lost all of them."""

    async def scenario() -> None:
        clock = ManualClock()
        store = Store(SHOP, MemoryEngine(clock), "shop")
        for step in range(2):
            await append(store, SALE, Sale(step=step, amount=1), task="t")
        later = clock.advance(seconds=60)
        assert [gone async for gone in prune(store, SALE, before=later, keep=3)] == []
        assert [entry.record.step async for entry in store.scan(SALE)] == [0, 1]
        for step in range(2, 5):
            await append(store, SALE, Sale(step=step, amount=1), task="t")
        later = clock.advance(seconds=60)
        assert [gone async for gone in prune(store, SALE, before=later, keep=3)] == [2]
        assert [entry.record.step async for entry in store.scan(SALE)] == [2, 3, 4]
        state = await store.get(SALES, task="t")
        assert state is not None
        assert state.events == 5

    asyncio.run(scenario())
