"""Cached reads keep nothing that was not committed, has expired, or could change unnoticed."""

import msgspec
import pytest

from keyhouse.schema import MILLISECONDS
from keyhouse.store import CachedReads, Transaction
from tests.store.support.harness import Harness, book, everywhere, session
from tests.store.support.library_schema import BOOK, HITS, MAP, UNTIL


async def title(id: str, tx: Transaction) -> str | None:
    found = await tx.get(BOOK, id=id)
    return None if found is None else found.title


@everywhere
async def test_a_result_of_a_write_that_is_not_committed_is_not_kept(harness: Harness) -> None:
    """It was kept with the rows that were read, which were none: no change could make it stale."""

    async def stored(id: str, tx: Transaction) -> object:
        return await tx.get(MAP, id=id)

    store = harness.store()
    cache = CachedReads(store, stored)
    await store.put(MAP, {"a": "stored"}, id="1")

    async def fails(tx: Transaction) -> None:
        await tx.put(MAP, {"a": "buffered"}, id="1")
        assert await cache.get_in(tx, "1") == {"a": "buffered"}
        raise LookupError

    with pytest.raises(LookupError):
        await store.transact(fails)
    assert await cache.get("1") == {"a": "stored"}
    await store.put(MAP, {"a": "changed"}, id="1")
    assert await cache.get("1") == {"a": "changed"}


@everywhere
async def test_a_transaction_sees_its_own_writes_in_place_of_a_cached_result(
    harness: Harness,
) -> None:
    async def hits(page: str, tx: Transaction) -> int | None:
        return await tx.get(HITS, page=page)

    store = harness.store()
    titles, counts = CachedReads(store, title), CachedReads(store, hits)
    await store.put(BOOK, book(title="stored"))
    assert await titles.get("1") == "stored" and await counts.get("a") == 0

    async def changes(tx: Transaction) -> object:
        await tx.put(BOOK, book(title="new"))
        await tx.add(HITS, 2, page="a")
        return await titles.get_in(tx, "1"), await counts.get_in(tx, "a")

    async def deletes(tx: Transaction) -> object:
        await tx.delete(BOOK, id="1")
        return await titles.get_in(tx, "1")

    assert await store.transact(changes) == ("new", 2)
    assert await titles.get("1") == "new" and await counts.get("a") == 2
    assert await store.transact(deletes) is None
    assert await titles.get("1") is None


@everywhere
async def test_a_result_by_no_record_is_computed_each_time(harness: Harness) -> None:
    computed = 0

    async def count(name: str, tx: Transaction) -> int:
        nonlocal computed
        computed += 1
        return computed

    cache = CachedReads(harness.store(), count)
    assert [await cache.get("a"), await cache.get("a")] == [1, 2] and len(cache) == 0


@everywhere
async def test_a_result_by_another_cached_result_is_not_kept(harness: Harness) -> None:
    """Only the rows that it read itself were compared, and not those of the other cache."""
    store, other = harness.store(), harness.store()
    titles = CachedReads(store, title)

    async def shout(id: str, tx: Transaction) -> str:
        hits = await tx.get(HITS, page="a")
        return f"{await titles.get_in(tx, id)} {hits}!"

    shouts = CachedReads(store, shout)
    await store.put(BOOK, book(title="one"))
    await titles.get("1")
    assert await store.transact(lambda tx: _then_write(shouts, tx)) == "one 0!"
    await other.put(BOOK, book(title="two"))
    assert await shouts.get("1") == "two 0!"


async def _then_write(cache: CachedReads[str, str], tx: Transaction) -> str | None:
    found = await cache.get_in(tx, "1")
    await tx.put(MAP, {}, id="a")
    return found


@everywhere
async def test_two_cached_results_of_one_record_must_be_of_one_revision(harness: Harness) -> None:
    """The revision of the second replaced that of the first, and an old result was committed."""
    store, other = harness.store(), harness.store()
    old, new = CachedReads(store, title), CachedReads(store, title)
    await store.put(BOOK, book(title="one"))
    await old.get("1")
    await other.put(BOOK, book(title="two"))
    await new.get("1")

    async def both(tx: Transaction) -> list[str | None]:
        found = [await old.get_in(tx, "1"), await new.get_in(tx, "1")]
        await tx.put(MAP, {"titles": found}, id="a")
        return found

    assert await store.transact(both) == ["two", "two"]


@everywhere
async def test_a_second_cache_of_a_transaction_is_filled(harness: Harness) -> None:
    store = harness.store()
    first, second = CachedReads(store, title), CachedReads(store, title)
    await store.put(BOOK, book(title="one"))
    await store.put(BOOK, book(id="2", title="two"))
    await first.get("1")

    async def both(tx: Transaction) -> None:
        assert await first.get_in(tx, "1") == "one" and await second.get_in(tx, "2") == "two"
        await tx.put(MAP, {}, id="a")

    await store.transact(both)
    assert (len(first), len(second)) == (1, 1)


@everywhere
async def test_a_read_that_raises_leaves_no_old_result(harness: Harness) -> None:
    """Each later transaction took the old result, and lost its first attempt."""
    engine, other = harness.faulty(), harness.store()
    store = harness.store(engine=engine)

    async def required(id: str, tx: Transaction) -> str:
        found = await title(id, tx)
        if found is None:
            raise LookupError(id)
        return found

    cache = CachedReads(store, required)
    await store.put(BOOK, book())
    await cache.get("1")
    await other.delete(BOOK, id="1")
    for attempts in (1, 0, 0):
        commits = engine.calls["commit"]
        with pytest.raises(LookupError):
            await store.transact(lambda tx: _then_write(cache, tx))
        assert engine.calls["commit"] - commits == attempts
    assert len(cache) == 0


@everywhere
async def test_a_result_ends_when_a_record_expires_by_its_own_field(harness: Harness) -> None:
    """Another program wrote the row without an expiry: it stays, and so did the result."""
    store = harness.store()

    async def users(ids: str, tx: Transaction) -> str:
        found = await tx.get_each(*[(UNTIL, {"id": id}) for id in ids])
        return " ".join([each.user for each in found if each is not None])

    async def in_transaction(tx: Transaction) -> str | None:
        found = await cache.get_in(tx, "12")
        await tx.put(MAP, {}, id="a")
        return found

    for id, user, seconds in (("1", "ann", 60), ("2", "bob", 30)):
        until = MILLISECONDS.format(harness.clock.now() + seconds * 1_000)
        row = msgspec.json.encode(session(id, user=user, until=until))
        await harness.plant({f"until:s:{id}": row})
    cache = CachedReads(store, users)
    for expected in ("ann bob", "ann", ""):
        assert await cache.get("12") == expected
        assert await store.transact(in_transaction) == expected
        harness.clock.advance(seconds=29)
        assert await store.transact(in_transaction) == expected
        assert await cache.get("12") == expected
        harness.clock.advance(seconds=1)


@everywhere
async def test_a_result_before_the_expiry_of_a_record_is_not_computed_again(
    harness: Harness,
) -> None:
    store, computed = harness.store(), 0

    async def user(id: str, tx: Transaction) -> str | None:
        nonlocal computed
        computed += 1
        found = await tx.get(UNTIL, id=id)
        return None if found is None else found.user

    until = MILLISECONDS.format(harness.clock.now() + 60_000)
    await store.put(UNTIL, session(until=until))
    cache = CachedReads(store, user)
    for _ in range(3):
        assert await cache.get("1") == "ann"
        harness.clock.advance(seconds=15)
    assert computed == 1
    harness.clock.advance(seconds=15)
    assert await cache.get("1") is None
