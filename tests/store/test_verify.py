"""Verify finds whatever is not as the records say, mends what can be mended, and finds nothing where nothing is wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ulid_at
from keyhouse.errors import RevisionError, UnreadableError
from keyhouse.schema import Record, Schema, Space, Summary
from keyhouse.store import Finding, Store, Transaction, append, fold
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.houses import House, book, clean, everywhere, findings, played, session
from tests.store.library import (
    BOOK,
    FIRST_IN_SERIES,
    HEARD,
    HEARING,
    HITS,
    LATER,
    LATER_STATE,
    LINE,
    MAP,
    NEXT_LINE,
    ONE_ISBN,
    SECONDS_OF,
    SEEN,
    SLIDING,
    UNTIL,
    VIEWING,
    Heard,
    Hearing,
    Line,
    Viewing,
)

START = 1_767_225_600_000


async def sound(house: House) -> Store:
    """Some of everything, and nothing wrong."""
    store = house.store()
    await store.put(BOOK, book("1", series="s", position=1, tags=["x"], isbn="9", year=1, shelf="a", rating=2))
    await store.put(BOOK, book("2", series="s", position=2, tags=["x", "y"], isbn="8", year=1, shelf="a"))
    await store.put(BOOK, book("3", year=2))
    for state in ("open", "done"):
        await store.put(VIEWING, Viewing(state=state, asset="7", topic="t"))
    await store.put(SLIDING, session())
    await store.put(MAP, {"a": 1}, id="m")
    await store.add(HITS, 3, page="p")
    return store


def told(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in found]


Damage = dict[str, bytes | None]
OPEN, DONE = b'{"state":"open","asset":"7","topic":"t"}', b'{"state":"done","asset":"7","topic":"t"}'

MENDED: dict[str, tuple[Damage, list[tuple[str, str]]]] = {
    "an index row is gone": ({"idx:tag:x:1": None}, [("missing", "idx:tag:x:1")]),
    "an index row says something else": ({"idx:title:title 1:1": b'"2"'}, [("wrong", "idx:title:title 1:1")]),
    "an index row that nobody earns": ({"idx:tag:z:1": b"1"}, [("dangling", "idx:tag:z:1")]),
    "an index row of no record": ({"idx:tag:x:99": b"1"}, [("dangling", "idx:tag:x:99")]),
    "a unique row is gone": ({"isbn:9": None}, [("missing", "isbn:9")]),
    "a unique row that nobody earns": ({"isbn:7": b'"1"'}, [("dangling", "isbn:7")]),
    "a unique row of no record": ({"isbn:7": b'"99"'}, [("dangling", "isbn:7")]),
    "a unique row held by one who does not earn it": ({"isbn:9": b'"3"'}, [("wrong", "isbn:9")]),
    "a unique row that is no JSON": ({"isbn:9": b"{"}, [("unreadable", "isbn:9")]),
    "a first row is gone": ({"first:s": None}, [("missing", "first:s")]),
    "a first row that nobody earns": ({"first:z": b'"1"'}, [("dangling", "first:z")]),
    "a first row held by one who does not earn it": ({"first:s": b'"3"'}, [("dangling", "first:s")]),
    "a first row of no record": ({"first:s": b'"99"'}, [("dangling", "first:s")]),
    "a summary is gone": ({"shelf:a": None}, [("missing", "shelf:a"), ("wrong", "shelf:a")]),
    "a summary without one member": (
        {"shelf:a": b'{"books":{"1":{"title":"Title 1"}},"v":1}'},
        [("wrong", "shelf:a")],
    ),
    "a summary with another entry": (
        {"shelf:a": b'{"books":{"1":{"title":"?"},"2":{"title":"Title 2"}},"v":1}'},
        [("wrong", "shelf:a")],
    ),
    "a summary with a member too much": (
        {"shelf:a": b'{"books":{"1":{"title":"Title 1"},"2":{"title":"Title 2"},"3":{"title":"x"}},"v":1}'},
        [("dangling", "shelf:a")],
    ),
    "a summary that nobody earns": ({"shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'}, [("dangling", "shelf:z")]),
    "a summary that is no list": (
        {"shelf:a": b"{"},
        [("unreadable", "shelf:a"), ("wrong", "shelf:a")],
    ),
    "a member that two stand behind, without either": (
        {"v:open|7": None, "v:done|7": None},
        [("dangling", "seen:t")],
    ),
    "a count is gone": ({"year:0001": None}, [("miscounted", "year:0001")]),
    "a count that is wrong": ({"year:0001": b"5"}, [("miscounted", "year:0001")]),
    "a count that is no number": ({"year:0001": b'"x"'}, [("miscounted", "year:0001")]),
    "a count of nobody": ({"year:0099": b"1"}, [("miscounted", "year:0099")]),
    "a record without its rows": (
        {"b:5": b'{"id":"5","title":"x","series":"q"}'},
        [
            ("missing", "idx:title:x:5"),
            ("missing", "idx:series:q:null:5"),
            ("missing", "first:q"),
            ("miscounted", "year:0000"),
        ],
    ),
    "rows without their record": (
        {"b:3": None},
        [("dangling", "idx:title:title 3:3"), ("miscounted", "year:0002")],
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_what_is_wrong_is_found_and_mended(name: str) -> None:
    damage, expected = MENDED[name]

    async def story(house: House) -> None:
        store = await sound(house)
        before = await house.rows()
        await house.plant(damage)
        damaged = await house.rows()
        found = await findings(store)
        assert {kind for kind, _ in told(found)} >= {expected[0][0]} and not any(finding.mended for finding in found)
        assert await house.rows() == damaged, "without repair, nothing is written"
        found = await findings(store, repair=True)
        assert sorted(told(found)) == sorted(expected) and all(finding.mended for finding in found)
        await clean(store)
        if (
            not {"b:5", "b:3", "v:open|7", "year:0099"} & damage.keys()
            and name != "a first row held by one who does not earn it"
        ):
            after = await house.rows()
            assert {key: parsed(value) for key, (value, _) in after.items()} == {
                key: parsed(value) for key, (value, _) in before.items()
            }

    run(story)


def parsed(value: bytes) -> Any:
    return msgspec.json.decode(value)


def run(story: Callable[[House], Awaitable[None]]) -> None:
    asyncio.run(played(story, "memory", Path()))


UNMENDED: dict[str, tuple[Damage, list[tuple[str, str]]]] = {
    "a record that is no JSON": ({"b:5": b"{"}, [("unreadable", "b:5")]),
    "a record of another type": ({"b:5": b'{"id":"5"}'}, [("unreadable", "b:5")]),
    "a record nested without end": ({"b:map:q": b"[" * 50_000}, [("unreadable", "b:map:q")]),
    "a record whose rows no key can hold": ({"b:5": b'{"id":"5","title":" "}'}, [("unreadable", "b:5")]),
    "a key of no template": ({"what:ever": b"1"}, [("unknown", "what:ever")]),
    "an index row of another shape": ({"idx:tag:x": b"1"}, [("unknown", "idx:tag:x")]),
    "a unique row that is no JSON": ({"isbn:7": b"{"}, [("unreadable", "isbn:7")]),
    "a unique row that leads nowhere": ({"isbn:7": b"5"}, [("unreadable", "isbn:7")]),
    "a unique row that leads to no text": ({"isbn:7": b"null"}, [("unreadable", "isbn:7")]),
    "a summary that nobody earns and that is no list": ({"shelf:z": b"5"}, [("unreadable", "shelf:z")]),
    "a summary of what are no keys": ({"shelf:z": b'{"books":[5]}'}, [("unreadable", "shelf:z")]),
}


@pytest.mark.parametrize("name", UNMENDED)
def test_what_there_is_nothing_to_go_by_is_told_and_left_until_a_person_says_drop(name: str) -> None:
    damage, expected = UNMENDED[name]

    async def story(house: House) -> None:
        store = await sound(house)
        before = await house.rows()
        await house.plant(damage)
        damaged = await house.rows()
        for options in ({}, {"repair": True}):
            found = await findings(store, **options)
            assert told(found) == expected and not any(finding.mended for finding in found)
        assert await house.rows() == damaged
        found = await findings(store, drop=True)
        assert told(found) == expected and all(finding.mended for finding in found)
        assert await house.rows() == before

    run(story)


@everywhere
async def test_two_records_that_claim_one_name_are_a_conflict_that_a_person_decides(house: House) -> None:
    store = await sound(house)
    await house.plant({"b:3": b'{"id":"3","title":"Title 3","isbn":"9","year":2}'})
    damaged = await house.rows()
    for repair in (False, True):
        found = await findings(store, repair=repair)
        assert told(found) == [("conflict", "isbn:9")] and not found[0].mended and found[0].of == "book"
    assert await house.rows() == damaged
    await store.put(BOOK, book("3", year=2))
    await clean(store)


@everywhere
async def test_a_record_that_no_longer_reads_keeps_its_rows(house: House) -> None:
    """Its index rows are all that is left to find it by: they are not dangling."""
    store = await sound(house)
    await house.plant({"b:2": b"{"})
    found = await findings(store, repair=True)
    assert ("unreadable", "b:2") in told(found) and not [key for kind, key in told(found) if kind == "dangling"]
    assert "idx:tag:y:2" in await house.rows() and "isbn:8" in await house.rows()


@everywhere
async def test_a_record_that_no_longer_reads_is_counted_nowhere_that_it_was_not(house: House) -> None:
    """Found by a review: it was taken to earn every count there is. A wrong count was "mended" to another wrong one, and a
    count of nobody to 1. Where it may have been counted, the count is left as it is."""
    store = await sound(house)
    await house.plant({"b:2": b"{", "year:0002": b"7", "year:0099": b"5"})
    found = [finding for finding in await findings(store, repair=True) if finding.kind == "miscounted"]
    assert [(finding.key, finding.detail) for finding in found] == [
        ("year:0002", "says 7, should be 1"),
        ("year:0099", "says 5, should be 0"),
    ]
    rows = await house.rows()
    assert [rows[key][0] for key in ("year:0001", "year:0002", "year:0099")] == [b"2", b"1", b"0"]
    assert [finding.kind for finding in await findings(store, repair=True)] == ["unreadable"]


@everywhere
async def test_a_row_that_expires_at_another_time_than_its_record_is_wrong(house: House) -> None:
    store = await sound(house)
    await store.put(UNTIL, session("u", until="2026-01-01T00:05:00Z"))
    await house.plant({"sliding:user:ann:1": b"1", "until:token:tu": b'"u"'}, expires=START + 5_000)
    assert sorted(told(await findings(store))) == [("wrong", "sliding:user:ann:1"), ("wrong", "until:token:tu")]
    assert len(await findings(store, repair=True)) == 2
    await clean(store)
    house.clock.advance(seconds=60)
    await clean(store)


@everywhere
async def test_verify_tells_how_far_it_is(house: House) -> None:
    store = await sound(house)
    progress: list[int] = []
    await findings(store, on_progress=progress.append)
    assert progress == [len(await house.rows())]


# Online: what is looked at while others change it


@everywhere
async def test_verify_finds_nothing_while_writers_write(house: House) -> None:
    engine = house.faulty(yields=True)
    store = house.store(engine=engine)
    for number in range(30):
        await store.put(BOOK, book(f"{number:02d}", series="s", isbn=str(number), shelf="a", year=number % 3))
    done = False

    async def write(offset: int) -> None:
        number = offset
        while not done:
            number = (number * 7 + 3) % 30
            id = f"{number:02d}"
            if number % 4:
                await store.put(
                    BOOK,
                    book(
                        id,
                        series="st"[number % 2],
                        isbn=str(number),
                        shelf="ab"[offset % 2],
                        year=offset % 5,
                        tags=[id[0]],
                    ),
                )
            else:
                await store.delete(BOOK, id=id)
            await store.put(VIEWING, Viewing(state="open", asset=id, topic=str(offset)))
            await store.delete(VIEWING, state="done", asset=id)

    writers = [asyncio.ensure_future(write(offset)) for offset in range(4)]
    try:
        for turn in range(6):
            assert await findings(store, repair=turn % 2 == 1) == []
    finally:
        done = True
        await asyncio.gather(*writers)
    await clean(store)


@everywhere
async def test_a_name_that_changes_hands_while_it_is_looked_at_is_not_taken_from_its_new_holder(house: House) -> None:
    """The page shows that 1 has the name. It gives it to 2. Record 1 does not earn the row any more: it was found
    dangling, and the row, which is 2's by then, was deleted."""
    store = await sound(house)

    async def change_hands() -> None:
        await store.put(BOOK, book("1", series="s", position=1))
        await store.put(BOOK, book("2", isbn="9"))

    engine = FaultyEngine(house.engine, meanwhile(1, change_hands, call="scan", after=True))
    assert await findings(house.store(engine=engine), repair=True) == []
    found = await store.lookup(BOOK, ONE_ISBN, isbn="9")
    assert found is not None and found.record.id == "2"
    await clean(store)


@everywhere
async def test_a_record_that_changes_between_two_looks_is_no_finding(house: House) -> None:
    """The record is read, it changes, its row is read: nothing was wrong at any moment. A look that writes nothing must hold
    together as one that does."""
    store = await sound(house)

    async def change() -> None:
        found = await store.get(BOOK, id="3")
        assert found is not None
        tags, isbn = (["z"], "3") if not found.tags else ([], None)
        await store.put(BOOK, msgspec.structs.replace(found, tags=tags, isbn=isbn))

    for chosen in range(64):
        faults = [meanwhile(at + 3, change, call="read") for at in range(6) if chosen >> at & 1]
        for repair in (False, True):
            engine = FaultyEngine(house.engine, *faults)
            assert await findings(house.store(engine=engine), repair=repair) == [], bin(chosen)


@everywhere
async def test_a_count_is_right_though_one_record_came_as_another_went(house: House) -> None:
    """A transaction that deletes one book and puts another leaves the count as it is. A count page by page may see both, or
    neither: the row must show that something happened."""
    store = house.store()
    async with store.transaction() as tx:
        for number in range(1_100):
            await tx.put(BOOK, book(f"{number:04d}x", year=7))
    await house.plant({"year:0007": b"3"})
    swaps = 0

    async def swap() -> None:
        nonlocal swaps
        swaps += 1
        async with store.transaction() as tx:
            await tx.delete(BOOK, id="1099x")
            await tx.put(BOOK, book("0000", year=7))

    plain = FaultyEngine(house.engine)
    await findings(house.store(engine=plain))
    recount = plain.calls["scan"] - 2  # the second page of the recount
    engine = FaultyEngine(house.engine, meanwhile(recount, swap, call="scan"))
    found = await findings(house.store(engine=engine), repair=True)
    assert swaps == 1 and told(found) == [("miscounted", "year:0007")]
    await clean(store)


@everywhere
async def test_a_count_that_changes_as_it_is_mended_is_counted_again(house: House) -> None:
    store = await sound(house)
    await house.plant({"year:0001": b"9"})

    async def change() -> None:
        await store.put(BOOK, book("4", year=1))

    engine = FaultyEngine(house.engine, meanwhile(1, change, call="commit"))
    assert told(await findings(house.store(engine=engine), repair=True)) == [("miscounted", "year:0001")]
    await clean(store)


@everywhere
async def test_what_becomes_unreadable_while_it_is_looked_at_does_not_end_the_run(house: House) -> None:
    await sound(house)
    await house.plant({"idx:tag:x:1": None, "shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'})

    async def spoil() -> None:
        await house.plant({"b:1": b"{", "shelf:z": b"{"})

    for at in range(1, 12):
        engine = FaultyEngine(house.engine, meanwhile(at, spoil, call="read"))
        await findings(house.store(engine=engine), repair=at % 2 == 0)
        await house.plant({"b:1": b'{"id":"1","title":"Title 1","tags":["x"],"year":1}', "idx:tag:x:1": None})
        await house.plant({"shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'})


@everywhere
async def test_a_row_that_is_mended_by_others_meanwhile_is_not_dropped(house: House) -> None:
    """`drop` deleted whatever stood at the key by then: a record that its owner had just written anew."""
    store = await sound(house)
    await house.plant({"b:3": b"{", "shelf:a": b"{"})

    async def mend() -> None:
        await house.plant({"b:3": None, "shelf:a": None})
        await store.put(BOOK, book("3", year=2))
        for id in ("1", "2"):
            found = await store.get(BOOK, id=id)
            assert found is not None
            await store.put(BOOK, msgspec.structs.replace(found, shelf="b"))
            await store.put(BOOK, found)

    engine = FaultyEngine(house.engine, meanwhile(1, mend, call="scan", after=True))
    await findings(house.store(engine=engine), repair=True, drop=True)
    assert await store.get(BOOK, id="3") is not None
    assert (await house.rows())["shelf:a"]


@everywhere
async def test_an_heir_is_chosen_when_the_holder_of_a_first_row_was_lost(house: House) -> None:
    store = await sound(house)
    await house.plant({"first:s": b'"99"'})
    await findings(store, repair=True)
    found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "1"


@everywhere
async def test_a_member_behind_which_one_of_two_records_stands_is_no_finding(house: House) -> None:
    store = await sound(house)
    await store.delete(VIEWING, state="done", asset="7")
    await clean(store)
    assert await store.members(SEEN, topic="t") == {"7": None}


@everywhere
async def test_a_list_in_another_programs_order_is_not_wrong(house: House) -> None:
    class Item(msgspec.Struct):
        id: str

    summary = Summary("all", member="id", under="ids")
    item = Record(Item, "i:{id}", summary)
    store = Store(Schema("items", item, space=Space("x")), house.engine, "s")
    for id in ("1", "2"):
        await store.put(item, Item(id))
    await house.plant({"all": b'{ "ids": ["2", "1"] }'}, space="s")
    await clean(store)


@everywhere
async def test_a_look_that_keeps_losing_is_not_repaired_blindly(house: House) -> None:
    store = await sound(house)
    await house.plant({"year:0001": b"9"})

    async def change(tx: Transaction) -> None:
        await tx.put(BOOK, book("3", year=1))
        await tx.delete(BOOK, id="3")

    faults = [meanwhile(at, lambda: store.transact(change), call="scan") for at in range(2, 60)]
    found = await findings(house.store(engine=FaultyEngine(house.engine, *faults)), repair=True)
    assert [(finding.kind, finding.mended) for finding in found] == [("miscounted", False)]


# Logs


def _heard(seconds: int, user: str = "ann", at: str = "") -> Heard:
    return Heard(user=user, book="b", seconds=seconds, at=at)


@everywhere
async def test_an_event_that_came_past_its_log_is_found_and_folded(house: House) -> None:
    """An import had brought events without the state: the next append moved `through` past them, and they never counted."""
    store = house.store()
    await append(store, HEARD, _heard(5))
    later = ulid_at(house.clock.now() + 1_000)
    async with store.transaction() as tx:
        await tx.restore(HEARD, _heard(7, at=later))
        await tx.restore(HEARD, _heard(9, user="bob", at=later))
    wrong = [("unfolded", "heard:state:ann"), ("unfolded", "heard:state:bob")]
    assert told(await findings(store)) == wrong and await store.get(SECONDS_OF, user="ann") == 5
    mended = await findings(store, repair=True)
    assert told(mended) == wrong and all(finding.mended for finding in mended)
    assert await store.get(SECONDS_OF, user="ann") == 12 and await store.get(SECONDS_OF, user="bob") == 9
    state = await store.get(HEARING, user="ann")
    assert state is not None and state.through == later
    await clean(store)


@everywhere
async def test_a_state_that_was_set_back_is_found(house: House) -> None:
    store = house.store()
    await append(store, HEARD, _heard(5))
    [before] = [written for key, (written, _) in (await house.rows()).items() if key == "heard:state:ann"]
    await append(store, HEARD, _heard(6))
    await house.plant({"heard:state:ann": before})
    [finding] = await findings(store)
    assert (finding.kind, finding.key) == ("unfolded", "heard:state:ann") and "came past it" in finding.detail


@everywhere
async def test_a_state_that_names_no_event_is_found_mended_and_named_by_an_append(house: House) -> None:
    """An append fell over with a bare ValueError."""
    store = house.store()
    entry = await append(store, HEARD, _heard(5))
    await house.plant({"heard:state:ann": b'{"through":"yesterday","book":"b","changes":0}'})
    await house.plant({"heard:state:cy": b'{"through":"yesterday","book":"b","changes":0}'})
    with pytest.raises(UnreadableError, match="keyhouse verify"):
        await append(store, HEARD, _heard(6))
    wrong = [("wrong", "heard:state:ann"), ("wrong", "heard:state:cy")]
    assert told(await findings(store)) == wrong == told(await findings(store, repair=True))
    ann, cy = await store.get(HEARING, user="ann"), await store.get(HEARING, user="cy")
    assert ann is not None and ann.through == entry.values[-1] and cy is not None and cy.through == ""
    await append(store, HEARD, _heard(6))
    assert await store.get(SECONDS_OF, user="ann") == 11
    await clean(store)


@everywhere
async def test_a_deferred_log_may_have_events_that_wait_but_no_state_without_a_place(house: House) -> None:
    store = house.store()
    await append(store, LATER, _heard(5))
    await clean(store)
    await house.plant({"later:state:ann": b'{"through":"yesterday","book":"b","changes":0}'})
    with pytest.raises(UnreadableError, match="keyhouse verify"):
        await fold(store, LATER, user="ann")
    for _ in range(2):
        [finding] = await findings(store, repair=True)
        assert (finding.kind, finding.mended) == ("unfolded", False) and "put the state anew" in finding.detail
    await store.put(LATER_STATE, Hearing(through=""), user="ann")
    assert await fold(store, LATER, user="ann") == 1
    await clean(store)


@everywhere
async def test_a_sequence_that_was_set_back_is_found_and_mended(house: House) -> None:
    """No line could be appended any more: its place was taken."""
    store = house.store()
    for text in "abc":
        await append(store, LINE, Line(text), job="j")
    await house.plant({"line:next:j": b"1"})
    with pytest.raises(RevisionError):
        await append(store, LINE, Line("d"), job="j")
    [finding] = await findings(store, repair=True)
    assert finding == Finding("wrong", "line:next:j", "line", "says 1, where there is an event 2 already", True)
    await append(store, LINE, Line("d"), job="j")
    assert await store.get(NEXT_LINE, job="j") == 4
    await house.plant({"line:next:j": None})
    assert told(await findings(store, repair=True)) == [("wrong", "line:next:j")]
    await clean(store)


@everywhere
async def test_no_event_that_is_appended_while_verify_looks_is_a_finding(house: House) -> None:
    store = house.store()
    for _ in range(3):
        await append(store, HEARD, _heard(1))
        await append(store, LINE, Line("x"), job="j")

    async def more() -> None:
        await append(store, HEARD, _heard(1))
        await append(store, HEARD, _heard(1, user="new"))
        await append(store, LINE, Line("x"), job="j")

    for call in ("scan", "read"):
        for at in range(1, 14, 2):
            engine = FaultyEngine(house.engine, meanwhile(at, more, call=call, after=True))
            assert await findings(house.store(engine=engine), repair=True) == []
    assert await store.get(SECONDS_OF, user="ann") == await store.count(HEARD, user="ann")
