"""Watches that have much to deliver leave turns of the event loop to others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from keyhouse import Event, Record, Schema, Space, Store, Template, open_engine
from keyhouse.scheduling.work_turns import WATCH_ROWS
from keyhouse.service.served_engine import ServedEngine
from keyhouse.store.reads.long_read import PAGE_BYTES
from keyhouse.store.reads.record_watch import WatchedRecord, watch_records
from tests.support.polling import loop_turns


class Clip(msgspec.Struct):
    id: str
    text: str


CLIP = Record(Clip, Template("clip:{id}"), name="clip")
NOTE = Record(Clip, Template("note:{id}"), name="note", unknown="keep")
BOARD = Schema("board", CLIP, NOTE, space=Space("a tenant"))


class Turns:
    """Turns of the event loop that others had."""

    count = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    turns = Turns()

    async def others() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    try:
        yield turns
    finally:
        running.cancel()


@pytest.mark.parametrize("url", ["memory:", "sqlite:{folder}/board.db"])
@pytest.mark.parametrize(
    ("count", "size", "steps"),
    [(20 * WATCH_ROWS, 10, 15), (40, PAGE_BYTES // 4, 7)],
    ids=["many", "large"],
)
def test_a_replay_of_one_large_commit_is_not_one_step(
    url: str, count: int, size: int, steps: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with open_engine(url.format(folder=tmp_path)) as engine:
            store = Store(BOARD, ServedEngine(engine), "ann")
            await store.put_many(CLIP, [Clip(f"{n:05}", "x" * size) for n in range(count)])
            async with counted_turns() as turns:
                seen = 0
                async for event in store.watch(CLIP, since=0):
                    assert event.record is not None
                    seen += 1
                    if seen == count:
                        break
            assert turns.count >= steps

    asyncio.run(scenario())


def test_a_replay_of_several_records_is_in_order_and_leaves_turns_to_others() -> None:
    async def scenario() -> None:
        async with open_engine("memory:") as engine:
            store = Store(BOARD, ServedEngine(engine), "ann")
            first, second = WATCH_ROWS * 10, WATCH_ROWS * 20
            await store.put_many(CLIP, [Clip(f"{n:05}", "x") for n in range(first)])
            await store.put_many(NOTE, [Clip(f"{n:05}", "x") for n in range(first, second)])
            bound = [store.binding.record(each) for each in (CLIP, NOTE)]
            watched = [WatchedRecord(each, each.template.range({})) for each in bound]
            ids = []
            watch = watch_records(store.engine, "ann", watched, 0)
            async with counted_turns() as turns, aclosing(watch) as events:
                async for event in events:
                    assert isinstance(event, Event)
                    assert event.record is not None
                    assert (event.stored is not None) == event.key.startswith("note:")
                    ids.append(event.record.id)
                    if len(ids) == second:
                        break
            assert ids == [f"{n:05}" for n in range(second)]
            assert turns.count >= 15

    asyncio.run(scenario())


def test_a_change_goes_to_many_watches_in_turns() -> None:
    """All watches of a space read, decoded and encoded it in one turn of the event loop."""

    async def scenario() -> None:
        async with open_engine("memory:") as engine:
            store = Store(BOARD, ServedEngine(engine), "ann")
            await store.put(CLIP, Clip("old", ""))
            received: list[int] = []

            async def watch() -> None:
                async for _ in store.watch(CLIP, since=await store.revision()):
                    received.append(turns.count)
                    return

            async with counted_turns() as turns:
                watches = [asyncio.create_task(watch()) for _ in range(40)]
                await loop_turns(50)
                await store.put(CLIP, Clip("new", "x" * (PAGE_BYTES // 4)))
                await asyncio.gather(*watches)
            assert len(received) == 40
            assert max(Counter(received).values()) <= 6

    asyncio.run(scenario())
