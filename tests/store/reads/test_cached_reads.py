"""Cached reads: a result is reused while its records stay as they are, and never longer."""

from collections.abc import Awaitable, Callable
from functools import partial
from unittest import mock

import pytest

from keyhouse.errors import LinkError, UnknownOutcomeError
from keyhouse.store import CachedReads, Transaction
from keyhouse.store.reads import cached_reads
from keyhouse.testing.faults import fail
from tests.store.support import linked_schema as linked
from tests.store.support.harness import Harness, book, everywhere
from tests.store.support.library_schema import BOOK, HITS, MAP

Title = Callable[[Transaction], Awaitable[str]]


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
async def test_the_oldest_results_are_dropped_when_their_rows_are_too_large(
    harness: Harness,
) -> None:
    """Results of one large record under many names used memory that only their number bounded."""
    store = harness.store()

    async def read(names: str, tx: Transaction) -> list[object]:
        return await tx.get_each(*[(MAP, {"id": name}) for name in names])

    async def put(id: str, size: int) -> None:
        await store.put(MAP, {"text": "x" * (size - len('{"text":""}'))}, id=id)

    for id, size in (("a", 100), ("b", 300), ("c", 600), ("d", 1_001)):
        await put(id, size)
    cache = CachedReads(store, read)
    with mock.patch.object(cached_reads, "ROW_BYTES_MAX", 1_000):
        for names, held in (("a", 1), ("b", 2), ("c", 3), ("ab", 2), ("d", 2), ("a", 2)):
            await cache.get(names)
            assert len(cache) == held, names
        for size, held in ((900, 1), (50, 1)):
            await put("a", size)
            await cache.get("a")
            assert len(cache) == held, "a result that is replaced leaves its bytes"
        await cache.get("bc")
        assert len(cache) == 2


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


@everywhere
async def test_an_error_of_the_commit_by_a_cached_result_is_not_the_last_word(
    harness: Harness,
) -> None:
    """The author of the cached book was deleted, and the commit, which alone reads it, failed: as
    often as it was repeated, since no attempt read the book again."""
    store, other = harness.store(linked.SCHEMA), harness.store(linked.SCHEMA)
    await store.put(linked.AUTHOR, linked.Author(id="a"))
    await store.put(linked.AUTHOR, linked.Author(id="b"))
    await store.put(linked.BOOK, linked.Book(id="1", author="a"))

    async def author(id: str, tx: Transaction) -> str | None:
        found = await tx.get(linked.BOOK, id=id)
        return None if found is None else found.author

    cache = CachedReads(store, author)
    assert await cache.get("1") == "a"

    async def same_author(tx: Transaction) -> None:
        found = await cache.get_in(tx, "1")
        await tx.put(linked.BOOK, linked.Book(id="2", author=found))

    await other.put(linked.BOOK, linked.Book(id="1", author="b"))
    await other.delete(linked.AUTHOR, id="a")
    store.seen_owners.clear()  # as after a thousand other authors
    await store.transact(same_author)
    assert await store.get(linked.BOOK, id="2") == linked.Book(id="2", author="b")
    await other.delete(linked.BOOK, id="2")
    await harness.plant({"author:b": None})
    for _ in range(2):
        with pytest.raises(LinkError, match="refers to does not exist"):
            await store.transact(same_author)


@everywhere
async def test_an_unknown_outcome_of_a_commit_with_a_cached_result_is_not_repeated(
    harness: Harness,
) -> None:
    store = harness.store(engine=harness.faulty(fail(1, UnknownOutcomeError, after=True)))
    cache = CachedReads(store, Titles().read)
    await harness.store().put(BOOK, book(title="one"))
    await cache.get("1")
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await cache.get_in(tx, "1")
        await tx.add(HITS, 1, page="one")

    with pytest.raises(UnknownOutcomeError):
        await store.transact(work)
    assert runs == 1 and await harness.store().get(HITS, page="one") == 1


@everywhere
async def test_a_row_read_at_another_revision_than_a_cached_result_loses_the_race(
    harness: Harness,
) -> None:
    """Both revisions were sent as checks of one key, of which DynamoDB compared only the last: the
    write of the other store was lost."""
    engine, other = harness.faulty(), harness.store()
    store, titles = harness.store(engine=engine), Titles()
    cache = CachedReads(store, titles.read)

    attempts = 0

    async def read(tx: Transaction) -> str:
        found = await tx.get(BOOK, id="1")
        assert found is not None
        return found.title

    async def cached(tx: Transaction) -> str:
        await cache.get("1")  # as another request does
        found = await cache.get_in(tx, "1")
        assert found is not None
        return found[0]

    async def extend(tx: Transaction, *, first: Title, then: Title) -> None:
        nonlocal attempts
        attempts += 1
        title = await first(tx)
        if attempts == 1:
            await other.put(BOOK, book(title="two"))
        await then(tx)
        await tx.put(BOOK, book(title=f"{title}, extended"))

    for first, then in ((read, cached), (cached, read)):
        attempts = 0
        await other.put(BOOK, book(title="one"))
        await store.transact(partial(extend, first=first, then=then))
        assert attempts == 2
        stored = await store.get(BOOK, id="1")
        assert stored is not None and stored.title == "two, extended"
    for batch in engine.batches:
        assert len({check.key for check in batch.checks}) == len(batch.checks)
