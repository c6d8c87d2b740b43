"""Lists that were full once: `verify` completes them when they have room again, while others write."""

import asyncio
import random
from typing import Literal

import msgspec

from keyhouse.schema import Record, Schema, Space, Summary
from keyhouse.store import Store
from tests.store.support.harness import Harness, clean, everywhere, findings


class Clip(msgspec.Struct):
    id: str
    state: Literal["new", "seen"] = "new"
    topic: str = "t"


OF_TOPIC = Summary("topic:{topic}", member="id", under="ids", members_max=4)
CLIP = Record(Clip, "clip:{state:new|seen}:{id}", OF_TOPIC, name="clip")
CLIPS = Schema("clips", CLIP, space=Space("a channel"))


async def fill(store: Store, count: int) -> None:
    for number in range(count):
        await store.put(CLIP, Clip(str(number)))


async def row(store: Store) -> bytes | None:
    found = await store.row("topic:t")
    return None if found is None else found.value


@everywhere
async def test_a_list_with_room_again_is_completed(harness: Harness) -> None:
    store = harness.store(CLIPS)
    await fill(store, 7)
    await store.put(CLIP, Clip("6", "seen"))
    for id in "0125":
        await store.delete(CLIP, state="new", id=id)
    assert await row(store) == b'{"ids":["3"],"truncated":true}'
    await clean(store)
    [finding] = await findings(store, repair=True)
    assert (finding.kind, finding.key, finding.repaired) == ("wrong", "topic:t", True)
    assert await row(store) == b'{"ids":["3","4","6"]}'
    assert await findings(store, repair=True) == []


@everywhere
async def test_a_list_of_which_nothing_is_left_is_deleted(harness: Harness) -> None:
    store = harness.store(CLIPS)
    await fill(store, 5)
    for id in "01234":
        await store.delete(CLIP, state="new", id=id)
    assert await row(store) == b'{"ids":[],"truncated":true}'
    assert len(await findings(store, repair=True)) == 1
    assert await harness.rows() == {}


@everywhere
async def test_a_list_that_would_be_full_stays_truncated(harness: Harness) -> None:
    """A new member of a full and truncated list does not change it, so nothing could tell that it
    lacks none."""
    store = harness.store(CLIPS)
    await fill(store, 5)
    await store.delete(CLIP, state="new", id="0")
    assert await findings(store, repair=True) == []
    assert await row(store) == b'{"ids":["1","2","3"],"truncated":true}'


@everywhere
async def test_a_list_that_does_not_decode_is_another_finding(harness: Harness) -> None:
    store = harness.store(CLIPS)
    await fill(store, 1)
    await harness.plant({"topic:t": b'{"ids":7,"truncated":true}'})
    assert {finding.kind for finding in await findings(store, repair=True)} == {"unreadable"}


@everywhere
async def test_lists_are_completed_while_others_write(harness: Harness) -> None:
    """After any repair, a list without the mark has exactly its records."""
    engine = harness.faulty(yields=True)
    store, draw = harness.store(CLIPS, engine=engine), random.Random(9)
    done, completed = False, 0

    async def write(number: int) -> None:
        while not done:
            await asyncio.sleep(draw.choice([0, 0, 0.003]))
            id, topic = str(draw.randrange(8)), draw.choice("tu")
            if draw.random() < 0.5:
                await store.put(CLIP, Clip(id, draw.choice(["new", "seen"]), topic))
            else:
                await store.delete(CLIP, state=draw.choice(["new", "seen"]), id=id)

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    async with asyncio.timeout(60):
        while completed < 10:
            completed += len(await findings(store, repair=True))
    done = True
    await asyncio.gather(*writers)
    await findings(store, repair=True)
    await clean(store)
    records = [entry.record async for entry in store.scan(CLIP)]
    for topic in "tu":
        found = await store.row(f"topic:{topic}")
        value = None if found is None else found.value
        ids = {each.id for each in records if each.topic == topic}
        if not OF_TOPIC.is_truncated(value):
            assert set(OF_TOPIC.members(value)) == ids
