"""Lists that were full once: `verify` completes them when they have room, while others write."""

import asyncio
import random
from functools import partial
from typing import Literal

import msgspec
import pytest

from keyhouse.errors import NewerError
from keyhouse.schema import BoundSummary, Record, Schema, Space, Summary
from keyhouse.store import Store
from keyhouse.store.verify import lists
from keyhouse.testing.faults import Call, meanwhile
from tests.store.support.harness import Harness, clean, everywhere, findings
from tests.support.bound_rows import bound
from tests.support.polling import loop_turns


class Clip(msgspec.Struct):
    id: str
    state: Literal["new", "seen"] = "new"
    topic: str = "t"


OF_TOPIC = Summary("topic:{topic}", member="id", under="ids", members_max=4)
CLIP = Record(Clip, "clip:{state:new|seen}:{id}", OF_TOPIC, name="clip")
CLIPS = Schema("clips", CLIP, space=Space("a channel"))

WITH_VERSION = Record(
    Clip,
    "clip:{state:new|seen}:{id}",
    Summary("topic:{topic}", member="id", under="ids", members_max=4, version=("v", 1)),
    name="clip",
)
WITH_VERSIONS = Schema("clips", WITH_VERSION, space=Space("a channel"))


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
            await loop_turns(draw.choice([1, 1, 5]))
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
        if not bound(CLIP, OF_TOPIC).is_truncated(value):
            assert set(bound(CLIP, OF_TOPIC).members(value)) == ids


@everywhere
async def test_a_list_that_was_full_meanwhile_stays_truncated(harness: Harness) -> None:
    """The list was filled up and emptied again while the records were read: it had the same value
    as before, lost its mark, and lacked the record that came while it was full."""
    store = harness.store(CLIPS)
    await fill(store, 5)
    for id in "234":
        await store.delete(CLIP, state="new", id=id)
    before = await row(store)
    plain = harness.faulty()
    await findings(harness.store(CLIPS, engine=plain))

    async def fill_and_empty() -> None:
        for id in "abZ":
            await store.put(CLIP, Clip(id))
        for id in "ab":
            await store.delete(CLIP, state="new", id=id)
        assert await row(store) == before

    last = meanwhile(plain.calls["scan"] + 1, fill_and_empty, call="scan", after=True)
    engine = harness.faulty(last)
    [finding] = await findings(harness.store(CLIPS, engine=engine), repair=True)
    assert finding.key == "topic:t" and finding.repaired
    assert await row(store) == b'{"ids":["0","1","Z"]}', "it was completed by the next round"
    await clean(store)


@everywhere
async def test_a_truncated_list_of_newer_code_is_left_alone(harness: Harness) -> None:
    """The first ended `verify --repair` with NewerError, the second lost its mark."""
    store = harness.store(WITH_VERSIONS)
    for id in "01":
        await store.put(WITH_VERSION, Clip(id))
    for ids in (b'["0"]', b'["0","1"]'):
        newer = b'{"ids":' + ids + b',"v":2,"truncated":true}'
        await harness.plant({"topic:t": newer})
        assert await findings(store, repair=True) == []
        assert await row(store) == newer
    [listed] = WITH_VERSION.unbound.derived
    assert isinstance(listed, BoundSummary)
    with pytest.raises(NewerError):
        listed.without_mark("topic:t", newer)


@everywhere
async def test_a_list_that_becomes_newer_or_unreadable_does_not_end_verify(
    harness: Harness,
) -> None:
    store = harness.store(WITH_VERSIONS)
    for id in "012345":
        await store.put(WITH_VERSION, Clip(id))
    for id in "0125":
        await store.delete(WITH_VERSION, state="new", id=id)
    truncated = await row(store)
    assert truncated == b'{"ids":["3"],"v":1,"truncated":true}'
    whole = harness.faulty()
    assert len(await findings(harness.store(WITH_VERSIONS, engine=whole), repair=True)) == 1
    calls: list[Call] = ["read", "scan", "commit"]
    for value in (b'{"ids":["3"],"v":2,"truncated":true}', b'{"ids":7}'):
        for call in calls:
            for at in range(1, whole.calls[call] + 1):
                await harness.plant({"topic:t": truncated})
                plant = partial(harness.plant, {"topic:t": value})
                engine = harness.faulty(meanwhile(at, plant, call=call))
                found = await findings(harness.store(WITH_VERSIONS, engine=engine), repair=True)
                assert {each.kind for each in found} <= {"unreadable", "wrong", "missing"}
                if b'"v":2' in value:
                    assert await row(store) == value, (call, at)


@everywhere
async def test_many_lists_are_completed_in_passes_of_few(harness: Harness) -> None:
    store = harness.store(CLIPS)
    topics = [f"t{number}" for number in range(7)]
    for topic in topics:
        for number in range(5):
            await store.put(CLIP, Clip(f"{topic}-{number}", topic=topic))
        for number in range(3):
            await store.delete(CLIP, state="new", id=f"{topic}-{number}")
    rows: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lists, "PASS_MEMBERS", 8)
        found = await findings(store, repair=True, on_progress=rows.append)
    assert {each.key for each in found} == {f"topic:{topic}" for topic in topics}
    assert all(each.repaired for each in found)
    assert rows == sorted(rows) and rows[-1] > rows[0] * 3, "rows that are read again are reported"
    await clean(store)
    for topic in topics:
        listed = await store.row(f"topic:{topic}")
        assert listed is not None
        assert set(bound(CLIP, OF_TOPIC).members(listed.value)) == {f"{topic}-3", f"{topic}-4"}


@everywhere
async def test_one_pass_holds_a_bounded_number_of_lists(harness: Harness) -> None:
    """All members of all truncated lists were in memory at once."""
    store = harness.store(CLIPS)
    keys = [f"topic:{number:02}" for number in range(20)]
    await harness.plant(dict.fromkeys(keys, b'{"ids":["x"],"truncated":true}'))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lists, "PASS_MEMBERS", 12)
        found = lists.TruncatedLists()
        async for each in store.row_scan():
            match = store.find(each.key)
            assert match is not None
            found.add(match, each)
    assert list(found.lists) == keys[:3] and found.rest == keys[3]
