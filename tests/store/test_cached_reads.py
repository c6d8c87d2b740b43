"""Cached reads: a result is reused while its records stay as they are, and never longer."""

from unittest import mock

from keyhouse.store import CachedReads, Transaction
from tests.store.support.harness import Harness, book, everywhere
from tests.store.support.library_schema import BOOK, HITS


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
