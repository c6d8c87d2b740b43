"""Stores and engines that are opened for a block, with a URL or an engine."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path

import pytest

from keyhouse import ManualClock, Migration, Record, Schema, Space, open_engine, open_store
from keyhouse.errors import ClosedError, NewerError, UsageError
from keyhouse.schema import Meta

NOTE = Record(str, "note:{id}", name="note")
NOTES = Schema("notes", NOTE, meta=Meta(), space=Space("a desk"))


def ran(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn an async function into a test."""

    @wraps(story)
    def test(**given: object) -> None:
        async def main() -> None:
            await story(**given)

        asyncio.run(main())

    return test


async def nothing(tx: object, entry: object) -> None: ...


NEWER = Schema(
    "notes",
    NOTE,
    meta=Meta(),
    space=Space("a desk"),
    migrations=(Migration(1, "nothing", NOTE, nothing),),
)


@ran
async def test_a_block_closes_the_engine_that_it_opened(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/rows.db"
    async with open_engine(url) as engine:
        await engine.read("mine", ("a",))
    with pytest.raises(ClosedError):
        await engine.read("mine", ("a",))
    async with open_store(NOTES, url, "mine") as store:
        await store.put(NOTE, "x", id="a")
    with pytest.raises(ClosedError):
        await store.get(NOTE, id="a")


@ran
async def test_a_store_that_is_awaited_closes_its_engine(tmp_path: Path) -> None:
    store = await open_store(NOTES, f"sqlite:{tmp_path}/rows.db", "mine")
    await store.put(NOTE, "x", id="a")
    await store.close()
    with pytest.raises(ClosedError):
        await store.get(NOTE, id="a")


@ran
async def test_a_verb_of_a_store_that_is_not_awaited_names_await() -> None:
    for opening in (open_store(NOTES, "memory:", "mine"), open_engine("memory:")):
        with pytest.raises(AttributeError, match="write `await` or `async with` before"):
            opening.get(NOTE, id="a")  # type: ignore[union-attr]
        opening.close()


@ran
async def test_a_store_leaves_the_engine_of_others_open() -> None:
    async with open_engine("memory:", clock=ManualClock()) as engine:
        async with open_store(NOTES, engine, "mine") as store:
            await store.put(NOTE, "x", id="a")
        assert await store.get(NOTE, id="a") == "x"


@ran
async def test_a_block_that_raises_closes_too(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/rows.db"
    with pytest.raises(ZeroDivisionError):
        async with open_store(NOTES, url, "mine") as store:
            raise ZeroDivisionError
    with pytest.raises(ClosedError):
        await store.get(NOTE, id="a")


@ran
async def test_a_store_that_does_not_open_leaves_no_engine_open(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/rows.db"
    async with open_store(NEWER, url, "mine"):
        pass
    with pytest.raises(NewerError):
        async with open_store(NOTES, url, "mine") as store:
            await store.put(NOTE, "x", id="a")
    (tmp_path / "rows.db").unlink()


def test_opening_can_be_run_and_be_a_task() -> None:
    async def main() -> None:
        engine = await asyncio.create_task(open_engine("memory:"))
        first, second = await asyncio.gather(open_engine("memory:"), open_engine("memory:"))
        for each in (engine, first, second):
            await each.close()

    asyncio.run(asyncio.run(open_engine("memory:")).close())
    asyncio.run(main())


@ran
async def test_a_clock_is_only_for_a_url() -> None:
    async with open_engine("memory:") as engine:
        with pytest.raises(UsageError, match="clock to `open_engine`"):
            open_store(NOTES, engine, "mine", clock=ManualClock())
    async with open_store(NOTES, "memory:", "mine", clock=ManualClock()) as store:
        assert isinstance(store.engine.clock, ManualClock)
