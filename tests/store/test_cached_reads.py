"""Cached reads: a result is reused while its records stay as they are, and never longer."""

from unittest import mock

import pytest

from keyhouse.store import CachedReads, Transaction
from tests.store.support.harness import Harness, book, everywhere
from tests.store.support.library_schema import BOOK, HITS, MAP


class Titles:
    """Reads a book and, if there is one, the hits of the page with its title."""

    def __init__(self) -> None:
        self.computed = 0

    async def read(self, id: str, tx: Transaction) -> tuple[str, int] | None:
        self.computed += 1
        found = await tx.get(BOOK, id=id)
        if found is None:
            return None
        return found.title, await tx.get(HITS, page=found.title) or 0


@everywhere
async def test_a_cached_result_is_computed_once_and_read_by_one_call(harness: Harness) -> None:
    store, titles = harness.store(), Titles()
    cache = CachedReads(store, titles.read)
    await store.put(BOOK, book(title="one"))
    assert await cache.get("1") == ("one", 0)
    with mock.patch.object(store.engine, "read", wraps=store.engine.read) as read:
        assert await cache.get("1") == ("one", 0)
    assert titles.computed == 1 and read.await_count == 1


@everywhere
async def test_a_change_of_any_record_is_seen_at_once(harness: Harness) -> None:
    store, titles = harness.store(), Titles()
    other, cache = harness.store(), CachedReads(store, titles.read)
    await store.put(BOOK, book(title="one"))
    assert await cache.get("1") == ("one", 0)
    await other.add(HITS, 2, page="one")  # a row that was absent
    assert await cache.get("1") == ("one", 2)
    await other.put(BOOK, book(title="two"))
    assert await cache.get("1") == ("two", 0)
    await other.delete(BOOK, id="1")
    assert await cache.get("1") is None and len(cache) == 0
    await other.put(BOOK, book(title="two"))
    assert await cache.get("1") == ("two", 0)


@everywhere
async def test_the_oldest_result_is_dropped_from_a_full_cache(harness: Harness) -> None:
    store, titles = harness.store(), Titles()
    cache = CachedReads(store, titles.read, results_max=2)
    for id in ("1", "2", "3"):
        await store.put(BOOK, book(id=id, title=id))
        assert await cache.get(id) == (id, 0)
    assert len(cache) == 2
    await cache.get("3")
    assert titles.computed == 3
    await cache.get("1")
    assert titles.computed == 4 and len(cache) == 2


@everywhere
async def test_a_transaction_takes_a_cached_result_and_its_commit_checks_it(
    harness: Harness,
) -> None:
    store, titles, other = harness.store(), Titles(), harness.store()
    cache = CachedReads(store, titles.read)
    await store.put(BOOK, book(title="one"))

    async def work(tx: Transaction) -> tuple[str, int] | None:
        found = await cache.get_in(tx, "1")
        assert found is not None
        await tx.put(MAP, {"title": found[0]}, id="a")
        return found

    assert await store.transact(work) == ("one", 0)
    with mock.patch.object(store.engine, "read", wraps=store.engine.read) as read:
        assert await store.transact(work) == ("one", 0)
    assert titles.computed == 1 and read.await_count == 0
    await other.put(BOOK, book(title="two"))
    assert await store.transact(work) == ("two", 0), "the first attempt lost the race"
    assert titles.computed == 2 and await store.get(MAP, id="a") == {"title": "two"}


@everywhere
async def test_an_error_by_a_cached_result_is_not_the_last_word(harness: Harness) -> None:
    store, titles, other = harness.store(), Titles(), harness.store()
    cache = CachedReads(store, titles.read)
    await store.put(BOOK, book(title="one"))
    await cache.get("1")
    await other.put(BOOK, book(title="two"))

    async def rejecting(tx: Transaction) -> object:
        found = await cache.get_in(tx, "1")
        if found == ("one", 0):
            raise LookupError("one")
        await tx.put(MAP, {}, id="a")
        return found

    assert await store.transact(rejecting) == ("two", 0)
    await other.put(BOOK, book(title="one"))
    with pytest.raises(LookupError, match="one"):
        await store.transact(rejecting)


@everywhere
async def test_a_transaction_that_writes_nothing_returns_no_old_result(harness: Harness) -> None:
    store, titles, other = harness.store(), Titles(), harness.store()
    cache = CachedReads(store, titles.read)
    await store.put(BOOK, book(title="one"))
    await cache.get("1")
    await other.put(BOOK, book(title="two"))
    assert await store.transact(lambda tx: cache.get_in(tx, "1")) == ("two", 0)
