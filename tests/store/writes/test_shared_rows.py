"""Rows that several records share: unique, first, summary and count, also when records come and go
at once."""

import pytest

from keyhouse.errors import (
    CounterError,
    UniqueError,
    UnreadableError,
)
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import Harness, book, clean, everywhere
from tests.store.support.library_schema import (
    BOOK,
    FIRST_IN_SERIES,
    IN_YEAR,
    ON_SHELF,
    ONE_ISBN,
    SEEN,
    VIEWING,
    Viewing,
)

# Unique


@everywhere
async def test_a_unique_value_has_one_holder(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("1", isbn="9"))
    before = await harness.rows()
    with pytest.raises(UniqueError):
        await store.put(BOOK, book("2", isbn="9"))
    assert await harness.rows() == before
    await store.put(BOOK, book("1", isbn="8"))
    await store.put(BOOK, book("2", isbn="9"))
    with pytest.raises(UniqueError):
        await store.put(BOOK, book("1", isbn="9"))
    found = await store.lookup(BOOK, ONE_ISBN, isbn="9")
    assert found is not None and found.record.id == "2"
    assert await store.lookup(BOOK, ONE_ISBN, isbn="7") is None
    await clean(store)


@everywhere
async def test_a_unique_value_is_free_when_its_holder_is_gone(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("1", isbn="9"))
    await store.delete(BOOK, id="1")
    await store.put(BOOK, book("2", isbn="9"))
    await clean(store)


@everywhere
async def test_a_lookup_follows_a_value_that_moves_while_it_looks(harness: Harness) -> None:
    """The row says 1, and before record 1 is read, the value goes to 2: the answer is 2, not a
    record without it."""
    store = harness.store()
    await store.put(BOOK, book("1", isbn="9"))

    async def move() -> None:
        await store.put(BOOK, book("1"))
        await store.put(BOOK, book("2", isbn="9"))

    moving = harness.store(engine=FaultyEngine(harness.engine, meanwhile(2, move, call="read")))
    found = await moving.lookup(BOOK, ONE_ISBN, isbn="9")
    assert found is not None and found.record.id == "2"


@everywhere
async def test_a_lookup_follows_a_value_whose_holder_is_deleted_while_it_looks(
    harness: Harness,
) -> None:
    """A First row always has a holder, and yet its lookup said there was none: the old one was
    gone, and the new one had not been looked for."""
    store = harness.store()
    await store.put(BOOK, book("1", series="s"))
    await store.put(BOOK, book("2", series="s"))

    async def leave() -> None:
        await store.delete(BOOK, id="1")

    moving = harness.store(engine=FaultyEngine(harness.engine, meanwhile(2, leave, call="read")))
    found = await moving.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "2"


@everywhere
async def test_a_lookup_of_a_row_that_leads_nowhere_finds_nothing_and_ends(
    harness: Harness,
) -> None:
    """A row that was left behind by another program, and a record that is newer than it: it was
    looked up again and again, until the stack was full."""
    store = harness.store()
    await harness.plant({"isbn:9": b'"1"', "isbn:8": b'"7"'})
    await store.put(BOOK, book("1"))
    assert await store.lookup(BOOK, ONE_ISBN, isbn="9") is None
    assert await store.lookup(BOOK, ONE_ISBN, isbn="8") is None


@everywhere
async def test_a_lookup_of_a_row_outside_its_index_is_unreadable(
    harness: Harness,
) -> None:
    store = harness.store()
    for row in (b"{", b"5", b"null", b'""', b'["1"]', b'"\\u0000"'):
        await harness.plant({"isbn:9": row})
        with pytest.raises(UnreadableError):
            await store.lookup(BOOK, ONE_ISBN, isbn="9")


# First


@everywhere
async def test_the_first_of_several_holds_the_row_until_it_leaves(harness: Harness) -> None:
    store = harness.store()

    async def first() -> str | None:
        found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
        return None if found is None else found.record.id

    await store.put(BOOK, book("2", series="s", position=2))
    await store.put(BOOK, book("1", series="s", position=1))
    await store.put(BOOK, book("3", series="s", position=3))
    assert await first() == "2"
    await store.put(BOOK, book("2", series="s", position=9))
    assert await first() == "2", "it still derives the row"
    await store.put(BOOK, book("2", series="other"))
    assert await first() == "1", "the next in the order of the index follows"
    await store.delete(BOOK, id="1")
    assert await first() == "3"
    await store.delete(BOOK, id="3")
    assert await first() is None
    assert (await harness.rows()).keys() & {"first:s"} == set()
    await clean(store)


@everywhere
async def test_a_holder_that_leaves_as_another_comes_hands_the_row_to_it(harness: Harness) -> None:
    """The holder looks for a successor, finds none, and before it commits a newcomer arrives, who
    sees the holder still there: the row must not be lost between them."""
    store = harness.store()
    await store.put(BOOK, book("1", series="s"))

    async def arrive() -> None:
        await store.put(BOOK, book("2", series="s"))

    for call in ("commit", "scan"):
        engine = FaultyEngine(harness.engine, meanwhile(1, arrive, call=call, after=call == "scan"))
        await harness.store(engine=engine).delete(BOOK, id="1")
        found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
        assert found is not None and found.record.id == "2"
        await clean(store)
        await store.delete(BOOK, id="2")
        await store.put(BOOK, book("1", series="s"))


@everywhere
async def test_a_new_record_of_the_same_transaction_is_a_successor(harness: Harness) -> None:
    """The successor was looked for among stored rows only: put 2, delete 1 in one transaction left
    the row to nobody."""
    store = harness.store()
    await store.put(BOOK, book("1", series="s"))
    async with store.transaction() as tx:
        await tx.put(BOOK, book("2", series="s"))
        await tx.delete(BOOK, id="1")
    found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "2"
    async with store.transaction() as tx:
        await tx.delete(BOOK, id="2")
        await tx.put(BOOK, book("3", series="s"))
    found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "3"
    await clean(store)


@everywhere
async def test_a_successor_is_found_after_many_that_are_deleted_too(harness: Harness) -> None:
    store = harness.store()
    for number in range(20):
        await store.put(BOOK, book(f"{number:02d}", series="s"))
    async with store.transaction() as tx:
        for number in range(19, 0, -1):
            await tx.delete(BOOK, id=f"{number:02d}")
        await tx.put(BOOK, book("00", series="other"))
        await tx.put(BOOK, book("50", series="s"))
    found = await store.lookup(BOOK, FIRST_IN_SERIES, series="s")
    assert found is not None and found.record.id == "50"
    await clean(store)


# Summary and count


@everywhere
async def test_a_summary_lists_its_members_with_their_entries(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("1", shelf="a"))
    await store.put(BOOK, book("2", shelf="a", title="Two"))
    assert await store.members(ON_SHELF, shelf="a") == {
        "1": {"title": "Title 1"},
        "2": {"title": "Two"},
    }
    await store.put(BOOK, book("2", shelf="b", title="Two"))
    await store.put(BOOK, book("1", shelf="a", title="One"))
    assert await store.members(ON_SHELF, shelf="a") == {"1": {"title": "One"}}
    assert await store.members(ON_SHELF, shelf="none") == {}
    await clean(store)


@everywhere
async def test_a_member_of_two_records_is_removed_with_the_last(harness: Harness) -> None:
    store = harness.store()
    for state in ("open", "done"):
        await store.put(VIEWING, Viewing(state=state, asset="1", topic="x"))
    assert await store.members(SEEN, topic="x") == {"1": None}
    await store.delete(VIEWING, state="open", asset="1")
    assert await store.members(SEEN, topic="x") == {"1": None}
    await store.put(VIEWING, Viewing(state="open", asset="1", topic="y"))
    assert await store.members(SEEN, topic="y") == {"1": None}
    await store.put(VIEWING, Viewing(state="done", asset="1", topic="y"))
    assert await store.members(SEEN, topic="x") == {}
    async with store.transaction() as tx:
        await tx.delete(VIEWING, state="done", asset="1")
        await tx.delete(VIEWING, state="open", asset="1")
    assert await harness.rows() == {}


@everywhere
async def test_siblings_that_leave_at_the_same_moment_leave_no_member_behind(
    harness: Harness,
) -> None:
    store = harness.store()
    for state in ("open", "done"):
        await store.put(VIEWING, Viewing(state=state, asset="1", topic="x"))

    async def leave() -> None:
        await store.delete(VIEWING, state="done", asset="1")

    await harness.store(
        engine=FaultyEngine(harness.engine, meanwhile(1, leave, call="commit"))
    ).delete(VIEWING, state="open", asset="1")
    assert await harness.rows() == {}


@everywhere
async def test_a_count_counts_the_records_that_have_it(harness: Harness) -> None:
    store = harness.store()
    for id, year in (("1", 1965), ("2", 1965), ("3", 1966)):
        await store.put(BOOK, book(id, year=year))
    await store.put(BOOK, book("2", year=1966))
    await store.delete(BOOK, id="3")
    assert (
        await store.record_count(IN_YEAR, year=1965) == 1
        and await store.record_count(IN_YEAR, year=1966) == 1
    )
    assert await store.record_count(IN_YEAR, year=1) == 0


@everywhere
async def test_a_count_row_that_is_not_a_number_is_unreadable(harness: Harness) -> None:
    store = harness.store()
    for row in (b'"x"', b"1.5", b"--5", b"", b"9" * 5_000):
        await harness.plant({"year:1965": row})
        with pytest.raises((UnreadableError, CounterError)):
            await store.record_count(IN_YEAR, year=1965)
