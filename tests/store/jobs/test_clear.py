"""Clearing a space, and what it leaves."""

import pytest

from keyhouse.testing.faults import Killed, fail
from tests.store.support import linked_schema
from tests.store.support.harness import Harness, book, clean, everywhere, sound
from tests.store.support.library_schema import BOOK, HITS, IN_YEAR


@everywhere
async def test_a_cleared_space_has_the_rows_of_a_new_one(harness: Harness) -> None:
    store = await sound(harness)
    seen: list[int] = []
    assert await store.clear(on_progress=seen.append) == 8
    assert seen[-1] == 8 and await harness.rows() == {}
    await store.put(BOOK, book())
    await clean(store)


@everywhere
async def test_clearing_deletes_what_does_not_decode(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book(year=1965))
    await store.add(HITS, 3, page="x")
    await harness.plant({"b:2": b"[]", "idx:title:gone:9": b'"9"'})
    assert await store.clear() == 3
    assert await harness.rows() == {}
    assert await store.record_count(IN_YEAR, year=1965) == 0


@everywhere
async def test_clearing_leaves_other_spaces_and_unknown_rows(harness: Harness) -> None:
    store, other = harness.store(), harness.store(space="other")
    await store.put(BOOK, book())
    await other.put(BOOK, book())
    await harness.plant({"elsewhere": b"1"})
    assert await store.clear() == 1
    assert list(await harness.rows()) == ["elsewhere"]
    assert await other.count(BOOK) == 1


@everywhere
async def test_an_interrupted_clear_is_resumed_by_the_next(harness: Harness) -> None:
    store = harness.store()
    for number in range(120):
        await store.put(BOOK, book(str(number), tags=["a"]))
    faulty = harness.faulty(fail(2, Killed))
    with pytest.raises(Killed):
        await harness.store(engine=faulty).clear()
    left = await store.count(BOOK)
    assert 0 < left < 120
    await clean(store)
    assert await store.clear() == left
    assert await harness.rows() == {}


@everywhere
async def test_links_do_not_stop_a_clear(harness: Harness) -> None:
    store = harness.store(linked_schema.SCHEMA)
    await store.put(linked_schema.AUTHOR, linked_schema.Author(id="a"))
    await store.put(linked_schema.BOOK, linked_schema.Book(id="b", author="a"))
    assert await store.clear() == 2
    await store.put(linked_schema.AUTHOR, linked_schema.Author(id="a"))
    await clean(store)
