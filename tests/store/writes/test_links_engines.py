"""Links hold on every engine, and a deletion whose process is killed with -9 ends exactly once."""

import asyncio
import multiprocessing
import random
import time
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine, Span
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import LinkError
from keyhouse.store import Store, resume_deletions, verify
from keyhouse.testing.faults import FaultyEngine, Killed, fail
from tests.store.support.killed_deletion import delete
from tests.store.support.linked_schema import (
    AUTHOR,
    BOOK,
    ENTRY,
    MARKS_WITH_TAG,
    PERSON,
    SCHEMA,
    Author,
    Book,
    fill,
)
from tests.support.engine_openers import OPENERS

KILLS = 40
DISTINCT = 5
"""Kills at so many different moments of the deletion are enough."""

SPACE = "space"


def later(number: int) -> int:
    """Return a time after the leases of all processes before this one."""
    return int(time.time() * 1_000) + 120_000 * (number + 1)


async def keys_left(engine: Engine) -> set[str]:
    page = await engine.scan(SPACE, Span(), limit=1_000)
    return {row.key for row in page.rows}


@pytest.mark.parametrize("name", list(OPENERS))
def test_links_hold_on_every_engine(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = await OPENERS[name](tmp_path)(clock)
        try:
            store = Store(SCHEMA, engine, SPACE)
            others = [Store(SCHEMA, engine, SPACE) for _ in range(3)]
            await store.put(AUTHOR, Author(id="a"))
            results = await asyncio.gather(
                store.delete(AUTHOR, id="a"),
                *(other.put(BOOK, Book(id=str(n), author="a")) for n, other in enumerate(others)),
                return_exceptions=True,
            )
            assert all(
                r is True or not isinstance(r, BaseException) or isinstance(r, LinkError)
                for r in results
            ), results
            books = [entry async for entry in store.scan(BOOK)]
            assert (await store.get(AUTHOR, id="a") is None) == (books == [])
            await fill(store, "ada", lists=1, size=2)
            await fill(store, "bo", lists=4, size=9)
            assert await store.delete(PERSON, id="ada")
            small = FaultyEngine(engine, fail(6, Killed), rows=20)
            with pytest.raises(Killed):
                await Store(SCHEMA, small, SPACE).delete(PERSON, id="bo")
            assert await store.get(PERSON, id="bo") is None
            clock.advance(seconds=60)
            assert await resume_deletions(store) >= 1
            assert await store.record_count(MARKS_WITH_TAG, tag="x") == 0
            left = {key.partition(":")[0] for key in await keys_left(engine)}
            assert left <= {"tags", "author", "book", "books"}
            assert [finding async for finding in verify(store)] == []
        finally:
            await engine.close()

    asyncio.run(story())


def test_a_deletion_killed_with_9_is_resumed_until_it_ends(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.store.support.killed_deletion"])
    path, draw = tmp_path / "rows.db", random.Random(7)

    async def prepare() -> None:
        engine = SqliteEngine.open(path)
        store = Store(SCHEMA, engine, SPACE)
        await fill(store, "ada", lists=3, size=40)
        await fill(store, "bo", lists=1, size=2)
        await engine.close()

    async def at_any_moment() -> int:
        """Return the number of entries left; the owner is there, or none of its rows can be put."""
        engine = SqliteEngine.open(path)
        store = Store(SCHEMA, engine, SPACE)
        if await store.get(PERSON, id="ada") is None:
            with pytest.raises(LinkError):
                await store.put(ENTRY, "x", list="none", position=1)
        left = await store.count(ENTRY)
        await engine.close()
        return left

    async def finish() -> None:
        clock = ManualClock(later(KILLS))
        engine = SqliteEngine.open(path, clock=clock)
        store = Store(SCHEMA, engine, SPACE)
        await store.delete(PERSON, id="ada")
        await resume_deletions(store)
        assert await store.count(ENTRY) == 2 == await store.record_count(MARKS_WITH_TAG, tag="x")
        assert not [key for key in await keys_left(engine) if "ada" in key]
        assert [finding async for finding in verify(store)] == []
        await engine.close()

    asyncio.run(prepare())
    counts: list[int] = []
    while len(set(counts)) < DISTINCT and len(counts) < KILLS:
        number = len(counts)
        process = processes.Process(target=delete, args=(str(path), later(number)))
        process.start()
        process.join(draw.uniform(0.02, 0.25))
        process.kill()
        process.join()
        counts.append(asyncio.run(at_any_moment()))
    assert counts == sorted(counts, reverse=True)
    asyncio.run(finish())
