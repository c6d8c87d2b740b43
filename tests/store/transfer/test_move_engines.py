"""Every engine as target and source of a move and an export: the same rows, byte for byte."""

import asyncio
import io
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store import export_rows, import_rows, move
from keyhouse.testing.conformance.hostile_values import KEYS, VALUES
from keyhouse.testing.conformance.spaces import HOSTILE
from keyhouse.testing.faults import FaultyEngine, Killed, die
from tests.store.support.filled_engines import contents, digests, until_stored
from tests.support.engine_openers import OPENERS

ENGINES = [name for name in OPENERS if name != "memory"]


async def hostile(clock: ManualClock) -> MemoryEngine:
    """Fill a store with hostile names and values, some of which expire."""
    engine = MemoryEngine(clock)
    for space in HOSTILE[::3]:
        await engine.commit(space, Batch(puts=(Put(f"key of {space}", b"1"),)))
    keys = list(dict.fromkeys(KEYS))[::2]
    for number, key in enumerate(keys):
        expires = clock.now() + 3_600_000 + number if number % 5 == 0 else None
        await engine.commit(
            "hostile", Batch(puts=(Put(key, VALUES[number % len(VALUES)], expires),))
        )
    return engine


@pytest.mark.parametrize("name", ENGINES)
def test_a_store_is_moved_into_every_engine_though_killed_and_out_again(
    name: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source, last = await hostile(clock), MemoryEngine(clock)
        expected = await digests(source)
        engine = await OPENERS[name](tmp_path)(clock)
        try:
            for calls in (4, 15, 25):
                with pytest.raises(Killed):
                    await move(
                        source, FaultyEngine(engine, die(calls, after=calls % 2 == 0)), name="first"
                    )
            moved = await move(source, engine, name="first")
            assert {space.space: (space.rows, space.digest) for space in moved.spaces} == expected
            assert await digests(engine) == expected
            assert (await move(engine, last, name="second")).rows == moved.rows
            assert await contents(last) == await contents(source)
            lines = io.BytesIO()
            await export_rows(engine, lines.write)
            again = MemoryEngine(clock)
            await import_rows(again, lines.getvalue().splitlines(keepends=True))
            assert await contents(again) == await contents(source)
        finally:
            await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_followed_while_it_is_written(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine, target = await OPENERS[name](tmp_path)(clock), MemoryEngine(clock)
        try:
            for number in range(20):
                await engine.commit(f"s{number % 2}", Batch(puts=(Put(f"k{number:02d}", b"0"),)))
            switch = asyncio.Event()
            moving = asyncio.ensure_future(move(engine, target, name="one", switch=switch))
            await until_stored(target, "s1", "k19", b"0")
            for number in range(40):
                batch = Batch(
                    puts=(Put(f"k{number % 20:02d}", b"%d" % number),),
                    adds=(Add("n", 1),),
                    deletes=(f"k{(number + 7) % 20:02d}",),
                )
                await engine.commit(f"s{number % 2}", batch)
            await engine.commit("s1", Batch(puts=(Put("last", b"1"),)))
            await until_stored(target, "s1", "last", b"1")
            switch.set()
            moved = await moving
            assert await digests(engine) == await digests(target)
            assert {space.space for space in moved.spaces} == {"s0", "s1"}
            assert (await target.read(MARK_SPACE, ["move"])) == [None]
        finally:
            await engine.close()

    asyncio.run(scenario())
