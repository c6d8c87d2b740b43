"""Transactions at once: a lost race runs again, loses no update, and ends."""

import asyncio
from unittest import mock

import pytest

from keyhouse.errors import (
    ContentionError,
    RevisionError,
    UsageError,
)
from keyhouse.store import Transaction
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import Harness, book, clean, everywhere
from tests.store.support.library_schema import (
    BOOK,
    HEARD,
    HITS,
    MAP,
    SECONDS_OF,
    Heard,
)


@everywhere
async def test_a_lost_race_is_run_again_and_loses_no_update(harness: Harness) -> None:
    store = harness.store()
    await store.put(MAP, 0, id="n")
    raced = 0

    async def other() -> None:
        nonlocal raced
        raced += 1
        number: int = await store.get(MAP, id="n") or 0
        await store.put(MAP, number + 10, id="n")

    engine = FaultyEngine(
        harness.engine, *(meanwhile(at, other, call="commit") for at in (1, 2, 3))
    )

    async def increment(tx: Transaction) -> int:
        number: int = await tx.get(MAP, id="n") or 0
        await tx.put(MAP, number + 1, id="n")
        return number

    assert await harness.store(engine=engine).transact(increment) == 30
    assert raced == 3 and await store.get(MAP, id="n") == 31


@everywhere
async def test_a_block_that_lost_its_race_raises(harness: Harness) -> None:
    store = harness.store()
    await store.put(MAP, 0, id="n")
    with pytest.raises(ContentionError):
        async with store.transaction() as tx:
            number: int = await tx.get(MAP, id="n") or 0
            await store.put(MAP, 5, id="n")
            await tx.put(MAP, number + 1, id="n")
    assert await store.get(MAP, id="n") == 5


@everywhere
async def test_an_absence_that_was_read_holds_until_the_commit(harness: Harness) -> None:
    store = harness.store()
    with pytest.raises(ContentionError):
        async with store.transaction() as tx:
            assert await tx.get(MAP, id="n") is None
            await store.put(MAP, 5, id="n")
            await tx.put(MAP, 1, id="m")
    assert await store.get(MAP, id="m") is None


@everywhere
async def test_two_reads_at_once_of_one_row_are_one_read(harness: Harness) -> None:
    """Another commit came between two concurrent reads: the later row replaced the first, whose
    reader continued with a stale row that nothing checked."""
    store = harness.store()
    await store.put(MAP, 1, id="n")
    started = asyncio.Event()

    async def change() -> None:
        started.set()
        for _ in range(5):
            await asyncio.sleep(0)  # the first reader continues
        await harness.plant({"b:map:n": b"2"})

    faults = (
        meanwhile(2, started.wait, call="read", after=True),
        meanwhile(3, change, call="read"),
    )  # the first: its version
    with pytest.raises(ContentionError):
        async with harness.store(engine=FaultyEngine(harness.engine, *faults)).transaction() as tx:
            seen = await asyncio.gather(tx.get(MAP, id="n"), tx.get(MAP, id="n"))
            assert list(seen) == [1, 1]
            await tx.put(MAP, 3, id="m")


@everywhere
async def test_concurrent_writes_in_one_transaction_are_rejected(harness: Harness) -> None:
    """Each looked at a row that both of them share before the other had written it: the book that
    was first was missing in the list, though both were committed. Only an engine that lets others
    go first shows it: one behind a network."""
    store = harness.store(engine=harness.faulty(yields=True))
    await store.put(BOOK, book("2", shelf="a"))
    with pytest.raises(UsageError, match="one record at a time"):
        async with store.transaction() as tx:
            await asyncio.gather(
                tx.put(BOOK, book("1", shelf="a")), tx.put(BOOK, book("3", shelf="a"))
            )
    with pytest.raises(UsageError, match="one record at a time"):
        async with store.transaction() as tx:
            await asyncio.gather(tx.put(BOOK, book("1", shelf="a")), tx.delete(BOOK, id="2"))
    with pytest.raises(UsageError, match="one record at a time"):
        async with store.transaction() as tx:
            heard = Heard(user="ann", book="1", seconds=1)
            await asyncio.gather(tx.append(HEARD, heard), tx.append(HEARD, heard))
    assert [entry.record.id async for entry in store.scan(BOOK)] == ["2"]
    async with store.transaction() as tx:
        with pytest.raises(RevisionError):
            await tx.put(BOOK, book("2"), expect=None)
        await asyncio.wait_for(
            tx.put(BOOK, book("1", shelf="a")), 30
        )  # in a separate task, but not concurrently
        await tx.delete(BOOK, id="2")
        await tx.append(HEARD, Heard(user="ann", book="1", seconds=1))
        await tx.append(HEARD, Heard(user="ann", book="1", seconds=2))
    assert await store.get(SECONDS_OF, user="ann") == 3
    await clean(store)


@everywhere
async def test_adds_of_others_do_not_conflict_unless_the_counter_was_read(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        await tx.add(HITS, 1, page="a")
        await store.add(HITS, 10, page="a")
    assert await store.get(HITS, page="a") == 11
    with pytest.raises(ContentionError):
        async with store.transaction() as tx:
            await tx.get(HITS, page="a")
            await tx.add(HITS, 1, page="a")
            await store.add(HITS, 10, page="a")


@everywhere
async def test_adds_that_come_to_nothing_write_nothing(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        await tx.add(HITS, 2, page="a")
        await tx.add(HITS, -2, page="a")
    assert await harness.rows() == {}


@everywhere
async def test_a_counter_that_is_put_and_then_added_to_is_the_sum(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        await tx.put(HITS, 40, page="a")
        await tx.add(HITS, 2, page="a")
        assert await tx.get(HITS, page="a") == 42
        await tx.delete(HITS, page="a")
        await tx.add(HITS, 7, page="a")
        await tx.add(HITS, 1, page="b")
        await tx.put(HITS, 5, page="b")
    assert await store.get(HITS, page="a") == 7 and await store.get(HITS, page="b") == 5


@everywhere
async def test_a_transaction_that_always_loses_ends_with_contention(harness: Harness) -> None:
    store = harness.store()
    await store.put(MAP, 0, id="n")

    async def other() -> None:
        await harness.plant({"b:map:n": b"1"})

    faults = [meanwhile(at, other, call="commit") for at in range(1, 100)]
    losing = harness.store(engine=FaultyEngine(harness.engine, *faults))

    async def touch(tx: Transaction) -> None:
        await tx.get(MAP, id="n")
        await tx.put(MAP, 2, id="n")

    with mock.patch("keyhouse.store.writes.attempts.TRANSACTION_ATTEMPTS_MAX", 12):
        with pytest.raises(ContentionError) as refused:
            await losing.transact(touch)
        assert refused.value.fields["attempts"] == 12
        faults = [
            meanwhile(at, lambda: store.put(BOOK, book(title="x")), call="commit")
            for at in range(1, 100)
        ]
        with pytest.raises(ContentionError):
            await harness.store(engine=FaultyEngine(harness.engine, *faults)).put(
                BOOK, book(title="mine")
            )
    await clean(store)


@everywhere
async def test_expectations_are_checked_again_after_a_lost_race(harness: Harness) -> None:
    store = harness.store()
    first = await store.put(BOOK, book())

    async def other() -> None:
        await store.put(BOOK, book(title="theirs"))

    racing = harness.store(engine=FaultyEngine(harness.engine, meanwhile(1, other, call="commit")))
    with pytest.raises(RevisionError):
        await racing.put(BOOK, book(title="mine"), expect=first.revision)
    found = await store.get(BOOK, id="1")
    assert found is not None and found.title == "theirs"
