"""A watch that resumes at an old revision leaves turns of the event loop to others."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from keyhouse import Record, Schema, Space, Store, Template, open_engine
from keyhouse.store.long_read import PAGE_BYTES, WATCH_ROWS


class Clip(msgspec.Struct):
    id: str
    text: str


CLIP = Record(Clip, Template("clip:{id}"), name="clip")
BOARD = Schema("board", CLIP, space=Space("a tenant"))


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
            store = Store(BOARD, engine, "ann")
            await store.put_many(CLIP, [Clip(f"{n:05}", "x" * size) for n in range(count)])
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            running = asyncio.create_task(others())
            await asyncio.sleep(0)
            before, seen = turns, 0
            async for event in store.watch(CLIP, since=0):
                assert event.record is not None
                seen += 1
                if seen == count:
                    break
            assert turns - before >= steps
            running.cancel()

    asyncio.run(scenario())
