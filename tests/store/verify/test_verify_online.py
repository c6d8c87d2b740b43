"""Verify reports nothing wrong while others write, and repairs only what is wrong at one moment."""

import asyncio

import msgspec

from keyhouse.schema import Record, Schema, Space, Summary
from keyhouse.store import Store, Transaction
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import (
    Harness,
    book,
    clean,
    everywhere,
    findings,
    kinds_and_keys,
    sound,
)
from tests.store.support.library_schema import (
    BOOK,
    FIRST_IN_SERIES,
    ONE_ISBN,
    SEEN,
    VIEWING,
    Viewing,
)


@everywhere
async def test_verify_finds_nothing_while_writers_write(harness: Harness) -> None:
    engine = harness.faulty(yields=True)
    store = harness.store(engine=engine)
    for number in range(30):
        await store.put(
            BOOK, book(f"{number:02d}", series="s", isbn=str(number), shelf="a", year=number % 3)
        )
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
async def test_a_unique_row_that_changes_owner_during_verify_is_not_deleted(
    harness: Harness,
) -> None:
    """The page shows the name with record 1, which then gives it to 2. The row was reported
    dangling and deleted, though it belonged to 2.
    """
    store = await sound(harness)

    async def change_hands() -> None:
        await store.put(BOOK, book("1", series="s", position=1))
        await store.put(BOOK, book("2", isbn="9"))

    engine = FaultyEngine(harness.engine, meanwhile(1, change_hands, call="scan", after=True))
    assert await findings(harness.store(engine=engine), repair=True) == []
    found = await store.lookup(BOOK, ONE_ISBN, isbn="9")
    assert found is not None and found.record.id == "2"
    await clean(store)


@everywhere
async def test_a_record_that_changes_between_two_reads_is_not_a_finding(harness: Harness) -> None:
    """A record changes between the read of it and of its row: nothing was wrong at any moment."""
    store = await sound(harness)

    async def change() -> None:
        found = await store.get(BOOK, id="3")
        assert found is not None
        tags, isbn = (["z"], "3") if not found.tags else ([], None)
        await store.put(BOOK, msgspec.structs.replace(found, tags=tags, isbn=isbn))

    for chosen in range(64):
        faults = [meanwhile(at + 3, change, call="read") for at in range(6) if chosen >> at & 1]
        for repair in (False, True):
            engine = FaultyEngine(harness.engine, *faults)
            assert await findings(harness.store(engine=engine), repair=repair) == [], bin(chosen)


@everywhere
async def test_a_count_is_right_though_one_record_came_as_another_went(harness: Harness) -> None:
    """A transaction that deletes a book and puts another does not change the count. A recount by
    pages may see both or neither: the count row's revision must change.
    """
    store = harness.store()
    async with store.transaction() as tx:
        for number in range(1_100):
            await tx.put(BOOK, book(f"{number:04d}x", year=7))
    await harness.plant({"year:0007": b"3"})
    swaps = 0

    async def swap() -> None:
        nonlocal swaps
        swaps += 1
        async with store.transaction() as tx:
            await tx.delete(BOOK, id="1099x")
            await tx.put(BOOK, book("0000", year=7))

    plain = FaultyEngine(harness.engine)
    await findings(harness.store(engine=plain))
    recount = plain.calls["scan"] - 2  # the second page of the recount
    engine = FaultyEngine(harness.engine, meanwhile(recount, swap, call="scan"))
    found = await findings(harness.store(engine=engine), repair=True)
    assert swaps == 1 and kinds_and_keys(found) == [("miscounted", "year:0007")]
    await clean(store)


@everywhere
async def test_all_wrong_counts_of_a_record_are_counted_by_one_scan(harness: Harness) -> None:
    """Each wrong count was counted by a separate scan of all records."""
    await sound(harness)
    scans = []
    for wrong in (1, 40):
        await harness.plant({f"year:{1_000 + year}": b"7" for year in range(wrong)})
        engine = FaultyEngine(harness.engine)
        found = await findings(harness.store(engine=engine), repair=True)
        assert [finding.repaired for finding in found] == [True] * wrong
        scans.append(engine.calls["scan"])
    # the number of rows of counts decides into how many pages they fit
    assert scans[1] <= scans[0] + 1


@everywhere
async def test_a_count_that_changes_during_repair_is_counted_again(harness: Harness) -> None:
    store = await sound(harness)
    await harness.plant({"year:0001": b"9"})

    async def change() -> None:
        await store.put(BOOK, book("4", year=1))

    engine = FaultyEngine(harness.engine, meanwhile(1, change, call="commit"))
    assert kinds_and_keys(await findings(harness.store(engine=engine), repair=True)) == [
        ("miscounted", "year:0001")
    ]
    await clean(store)


@everywhere
async def test_a_row_that_becomes_unreadable_does_not_stop_verify(
    harness: Harness,
) -> None:
    await sound(harness)
    await harness.plant({"idx:tag:x:1": None, "shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'})

    async def spoil() -> None:
        await harness.plant({"b:1": b"{", "shelf:z": b"{"})

    for at in range(1, 12):
        engine = FaultyEngine(harness.engine, meanwhile(at, spoil, call="read"))
        await findings(harness.store(engine=engine), repair=at % 2 == 0)
        await harness.plant(
            {"b:1": b'{"id":"1","title":"Title 1","tags":["x"],"year":1}', "idx:tag:x:1": None}
        )
        await harness.plant({"shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'})


@everywhere
async def test_a_row_repaired_by_others_meanwhile_is_not_dropped(harness: Harness) -> None:
    """`drop` deleted a record that its owner had just written again."""
    store = await sound(harness)
    await harness.plant({"b:3": b"{", "shelf:a": b"{"})

    async def rewrite() -> None:
        await harness.plant({"b:3": None, "shelf:a": None})
        await store.put(BOOK, book("3", year=2))
        for id in ("1", "2"):
            found = await store.get(BOOK, id=id)
            assert found is not None
            await store.put(BOOK, msgspec.structs.replace(found, shelf="b"))
            await store.put(BOOK, found)

    engine = FaultyEngine(harness.engine, meanwhile(1, rewrite, call="scan", after=True))
    await findings(harness.store(engine=engine), repair=True, delete_unreadable=True)
    assert await store.get(BOOK, id="3") is not None
    assert (await harness.rows())["shelf:a"]


@everywhere
async def test_a_successor_is_chosen_when_the_holder_of_a_first_is_missing(
    harness: Harness,
) -> None:
    store = await sound(harness)
    await harness.plant({"first:s": b'"99"'})
    await findings(store, repair=True)
    found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "1"


@everywhere
async def test_a_summary_member_of_one_of_two_records_is_not_a_finding(
    harness: Harness,
) -> None:
    store = await sound(harness)
    await store.delete(VIEWING, state="done", asset="7")
    await clean(store)
    assert await store.members(SEEN, topic="t") == {"7": None}


@everywhere
async def test_a_list_in_another_programs_order_is_not_wrong(harness: Harness) -> None:
    class Item(msgspec.Struct):
        id: str

    summary = Summary("all", member="id", under="ids")
    item = Record(Item, "i:{id}", summary)
    store = Store(Schema("items", item, space=Space("x")), harness.engine, "s")
    for id in ("1", "2"):
        await store.put(item, Item(id))
    await harness.plant({"all": b'{ "ids": ["2", "1"] }'}, space="s")
    await clean(store)


@everywhere
async def test_a_look_that_keeps_losing_is_not_repaired_blindly(harness: Harness) -> None:
    store = await sound(harness)
    await harness.plant({"year:0001": b"9"})

    async def change(tx: Transaction) -> None:
        await tx.put(BOOK, book("3", year=1))
        await tx.delete(BOOK, id="3")

    faults = [meanwhile(at, lambda: store.transact(change), call="scan") for at in range(2, 60)]
    found = await findings(harness.store(engine=FaultyEngine(harness.engine, *faults)), repair=True)
    assert [(finding.kind, finding.repaired) for finding in found] == [("miscounted", False)]
