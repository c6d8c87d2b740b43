"""A store that has seen a record checks it, without another read, when others are linked to it."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.errors import LinkError
from keyhouse.store import Store, Transaction
from keyhouse.testing.faults import FaultyEngine
from tests.store.support.harness import SPACE, Harness, clean, everywhere, played
from tests.store.support.linked_schema import (
    AUTHOR,
    BOOK,
    ENTRY,
    LIST,
    PERSON,
    SCHEMA,
    VIEWS,
    Author,
    Book,
    Listing,
    fill,
)


async def _seen(harness: Harness) -> tuple[Store, FaultyEngine]:
    """Return a store that has seen the author `a`, and its engine."""
    engine = harness.faulty()
    store = harness.store(SCHEMA, engine=engine)
    await harness.store(SCHEMA).put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="first", author="a"))
    return store, engine


@everywhere
async def test_a_record_linked_to_a_seen_one_reads_only_its_own_row(harness: Harness) -> None:
    store, engine = await _seen(harness)
    reads = engine.calls["read"]
    await store.put(BOOK, Book(id="b", author="a"))
    assert engine.calls["read"] == reads + 1
    checked = {check.key: check.revision for check in engine.batches[-1].checks}
    guard = next(key for key in checked if "delete-author" in key)
    assert checked == {"book:b": None, "author:a": 1, guard: None}


@everywhere
async def test_a_seen_record_that_another_program_changed_costs_one_attempt(
    harness: Harness,
) -> None:
    store, engine = await _seen(harness)
    await harness.store(SCHEMA).put(AUTHOR, Author(id="a"))
    commits = engine.calls["commit"]
    await store.put(BOOK, Book(id="b", author="a"))
    assert engine.calls["commit"] == commits + 2
    await store.put(BOOK, Book(id="c", author="a"))
    assert engine.calls["commit"] == commits + 3
    await clean(store)


@everywhere
async def test_a_seen_record_that_the_store_itself_changed_costs_no_attempt(
    harness: Harness,
) -> None:
    store, engine = await _seen(harness)
    await store.put(AUTHOR, Author(id="a"))
    reads, commits = engine.calls["read"], engine.calls["commit"]
    await store.put(BOOK, Book(id="b", author="a"))
    assert (engine.calls["read"], engine.calls["commit"]) == (reads + 1, commits + 1)


@everywhere
async def test_a_seen_record_that_was_deleted_is_missed(harness: Harness) -> None:
    store, _ = await _seen(harness)
    other = harness.store(SCHEMA)
    await other.delete(BOOK, id="first")
    await other.delete(AUTHOR, id="a")
    with pytest.raises(LinkError, match="refers to does not exist"):
        await store.put(BOOK, Book(id="b", author="a"))
    await other.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="b", author="a"))
    await clean(store)


@everywhere
async def test_many_writers_pass_a_change_of_the_record_they_share(harness: Harness) -> None:
    store, engine = await _seen(harness)
    for turn in range(5):
        await harness.store(SCHEMA).put(AUTHOR, Author(id="a"))
        commits = engine.calls["commit"]
        await asyncio.gather(
            *(store.put(BOOK, Book(id=f"{turn}-{at}", author="a")) for at in range(20))
        )
        assert engine.calls["commit"] - commits <= 40, "each is tried twice at most"
    await clean(store)


@everywhere
async def test_records_of_one_transaction_depend_on_each_other(harness: Harness) -> None:
    store, _ = await _seen(harness)
    async with store.transaction() as tx:
        await tx.put(AUTHOR, Author(id="new"))
        await tx.put(BOOK, Book(id="b", author="new"))

    async def work(tx: Transaction) -> None:
        await tx.delete_alone(AUTHOR, id="new")
        await tx.put(BOOK, Book(id="c", author="new"))

    with pytest.raises(LinkError):
        await store.transact(work)


def test_stores_that_have_seen_an_owner_write_below_it_while_it_is_deleted() -> None:
    async def story(harness: Harness) -> None:
        for number in range(15):
            space = f"{SPACE}-{number}"
            stores = [
                harness.store(SCHEMA, space, engine=harness.faulty(yields=True)) for _ in range(4)
            ]
            await fill(stores[0], lists=1, size=2)
            for at, store in enumerate(stores):
                await store.put(ENTRY, "seen", list="ada-0", position=5 + at)

            async def put(store: Store, at: int) -> None:
                try:
                    await store.put(ENTRY, "x", list="ada-0", position=at)
                    await store.add(VIEWS, 1, list="ada-0")
                except LinkError:
                    return

            deleted, *_ = await asyncio.gather(
                stores[0].delete(PERSON, id="ada"),
                stores[1].put(LIST, Listing(id="ada-0", person="ada", title="again")),
                *(put(stores[at % 4], 10 + at) for at in range(8)),
                return_exceptions=True,
            )
            assert deleted is True
            assert {k for k in await harness.rows(space) if not k.startswith("tags")} == set()

    asyncio.run(played(story, "memory", Path()))
