"""Requests that must not grow with the number of spaces, watches or commits."""

import asyncio
from collections import Counter

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.dynamodb.log import Head
from keyhouse.engines.dynamodb.trimming import Trimming
from keyhouse.engines.retention import ChangesKept
from keyhouse.testing.conformance.harness import leave, step
from tests.support.dynamodb_tables import (
    ALL,
    InterceptingClient,
    intercept,
    opened,
    plain_client,
    put,
    scenario,
    settings,
)
from tests.support.polling import until


async def spaces(engine: Engine) -> list[str]:
    return [space async for space in engine.spaces()]


@scenario
async def test_idle_watches_share_their_polls() -> None:
    """Each polled alone: 300 of them took 45 % of a core, and 300 requests a second."""
    where = settings()
    async with opened(where) as engine, opened(where) as other:
        names = [f"s{number}" for number in range(120)]
        await put(engine, "a")
        watches = [engine.watch(name, ALL) for name in [*names, "s0", "s0"]]
        waiting = [asyncio.ensure_future(step(watch)) for watch in watches]
        client = intercept(engine)
        await until(lambda: client.calls.count("query") >= len(watches))  # each has caught up
        await until(lambda: _only_polls(client, 10))
        await other.commit("s0", Batch(puts=(Put("a", b"1"),)))
        changes = await asyncio.gather(waiting[0], *waiting[-2:])
        assert {change.key for change in changes} == {"a"}
        await other.commit("s119", Batch(puts=(Put("b", b"1"),)))
        assert (await waiting[119]).key == "b"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for watch in watches:
            await leave(watch)


def _only_polls(client: InterceptingClient, requests: int) -> bool:
    latest = client.calls[-requests:]
    return len(latest) == requests and set(latest) == {"batch_get_item"}


@scenario
async def test_spaces_are_listed_without_a_query_of_each() -> None:
    """100,000 spaces were 100,000 queries, by each process, every five minutes."""
    clock = ManualClock()
    async with opened(clock=clock) as engine:
        names = sorted(f"s{number}" for number in range(110))
        for number in range(0, 110, 10):
            await asyncio.gather(*(put(engine, "a", space=s) for s in names[number : number + 10]))
        await put(engine, "soon", space="soon", expires=clock.now() + 1_000)
        assert await spaces(engine) == [*names, "soon"]
        clock.advance(seconds=1)
        await engine.commit("s5", Batch(deletes=("a",)))
        await put(engine, "b", space="s7")
        await engine.commit("s7", Batch(deletes=("a",)))
        left = [name for name in names if name != "s5"]
        assert await spaces(engine) == left
        client = intercept(engine)
        assert await spaces(engine) == left
        assert Counter(client.calls) == {"query": 1, "batch_get_item": 2}
        await put(engine, "again", space="s5")
        assert await spaces(engine) == names
        await engine.forget("s5")
        assert await spaces(engine) == left


@scenario
async def test_the_log_is_trimmed_by_what_all_spaces_have_written() -> None:
    """Each space kept 100,000 changes: a log of many spaces hardly shrank."""
    where = settings()
    async with opened(where, changes_kept=10) as engine, plain_client() as client:
        for number in range(8):
            await put(engine, "a", space=f"s{number}")
            await put(engine, "b", space=f"s{number}")
        for turn in range(4):
            await engine.sweep(limit=1)
            for number in range(6):
                await put(engine, "busy", space=f"t{turn}-{number}")
        await engine.sweep(limit=1)
        table = await client.scan(TableName=f"{where.table}.log", ConsistentRead=True)
        entries = Counter(
            item["space"]["S"] for item in table["Items"] if item["key"]["S"].startswith("c")
        )
        assert all(entries[f"s:s{number}"] == 1 for number in range(8))
        assert await put(engine, "c", space="s0") == 3
        assert [row.key for row in (await engine.scan("s0", ALL, limit=5)).rows] == ["a", "b", "c"]
    async with opened(where) as another:
        assert (await another.scan("s1", ALL, limit=5)).revision == 2


def test_what_is_committed_during_a_walk_does_not_count() -> None:
    """A walk over many spaces takes several sweeps, while others commit."""
    trimming = Trimming(ChangesKept(10, 60))

    def walk(now: int, **heads: int) -> dict[str, int]:
        floors = {space: trimming.floor(space, Head(head, 0)) for space, head in heads.items()}
        trimming.finish_walk(now)
        return floors

    assert walk(0, a=100, b=5) == {"a": 0, "b": 0}
    assert walk(1_000, a=100, b=30) == {"a": 0, "b": 0}
    assert walk(2_000, a=100, b=39) == {"a": 0, "b": 0}  # 9 more, and too soon
    assert walk(62_000, a=100, b=39) == {"a": 0, "b": 0}
    assert walk(63_000, a=100, b=40) == {"a": 0, "b": 0}
    assert walk(64_000, a=100, b=40) == {"a": 99, "b": 5}
