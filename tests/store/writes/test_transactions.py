"""Transactions: reads that hold until the commit, writes that are seen at once, and all of it or
nothing."""

import asyncio
from unittest import mock

import msgspec
import pytest

from keyhouse.engine import Batch, Put
from keyhouse.errors import (
    ContentionError,
    LimitError,
    RecordError,
    UnavailableError,
    UniqueError,
    UnknownOutcomeError,
)
from keyhouse.limits import COMMIT_ROWS_MAX
from keyhouse.store import Transaction
from keyhouse.testing.faults import FaultyEngine, Killed, fail
from tests.store.support.harness import SPACE, Harness, book, clean, everywhere, session
from tests.store.support.library_schema import (
    BOOK,
    HITS,
    IN_YEAR,
    MAP,
    ONE_ISBN,
    SLIDING,
    SLIDING_TOKEN,
)


@everywhere
async def test_get_each_reads_records_by_one_call_and_the_commit_checks_them(
    harness: Harness,
) -> None:
    store = harness.store()
    await store.put(BOOK, book(title="stored"))
    await store.add(HITS, 2, page="a")

    async def work(tx: Transaction) -> None:
        await tx.put(BOOK, book(id="2", title="buffered"))
        await tx.add(HITS, 1, page="b")
        with mock.patch.object(store.engine, "read", wraps=store.engine.read) as read:
            found = await tx.get_each(
                (BOOK, {"id": "1"}),
                (BOOK, {"id": "2"}),
                (BOOK, {"id": "3"}),
                (HITS, {"page": "a"}),
                (HITS, {"page": "b"}),
                (HITS, {"page": "c"}),
            )
        assert read.await_count == 1
        assert [each and each.title for each in found[:3]] == ["stored", "buffered", None]
        assert found[3:] == [2, 1, 0]
        if (attempts := len(seen)) == 0:
            await store.put(BOOK, book(id="3", title="another"))
        seen.append(attempts)

    seen: list[int] = []
    with pytest.raises(AssertionError, match="another"):
        await store.transact(work)  # the second attempt finds the book that the first did not
    assert seen == [0]


@everywhere
async def test_what_a_transaction_writes_it_reads_and_others_do_not(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        await tx.put(BOOK, book(isbn="9", year=5))
        await tx.add(HITS, 3, page="a")
        await tx.add(HITS, 4, page="a")
        assert (await tx.get(BOOK, id="1")) is not None and await tx.get(HITS, page="a") == 7
        found = await tx.lookup(BOOK, ONE_ISBN, isbn="9")
        assert found is not None and found.revision == 0
        assert await tx.lookup(BOOK, ONE_ISBN, isbn="8") is None
        assert await store.get(BOOK, id="1") is None and await store.get(HITS, page="a") == 0
        await tx.delete(BOOK, id="1")
        assert (
            await tx.get(BOOK, id="1") is None and await tx.lookup(BOOK, ONE_ISBN, isbn="9") is None
        )
        await tx.put(BOOK, book(title="again"))
    assert (await harness.rows()).keys() == {
        "b:1",
        "idx:title:again:1",
        "year:0000",
        "year:0005",
        "hits:a",
    }
    assert (
        await store.record_count(IN_YEAR, year=0) == 1
        and await store.record_count(IN_YEAR, year=5) == 0
    )
    await clean(store)


@everywhere
async def test_several_records_are_written_by_one_commit_or_by_none(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    async with store.transaction() as tx:
        for id in ("1", "2", "3"):
            await tx.put(BOOK, book(id, series="s"))
    assert engine.calls["commit"] == 1
    with pytest.raises(UniqueError):
        async with store.transaction() as tx:
            await tx.put(BOOK, book("4", isbn="9"))
            await tx.put(BOOK, book("5", isbn="9"))
    assert await store.get(BOOK, id="4") is None
    await clean(store)


@everywhere
async def test_a_transaction_that_reads_only_commits_nothing(harness: Harness) -> None:
    engine = harness.faulty()
    async with harness.store(engine=engine).transaction() as tx:
        await tx.get(BOOK, id="1")
    assert engine.calls["commit"] == 0


@everywhere
async def test_a_rejected_put_leaves_nothing_in_the_transaction(
    harness: Harness,
) -> None:
    """The caller caught the UniqueError and continued: the record was written without its unique
    row. Also for a field that no index key can hold, and for a delete that meets an unreadable row.
    """
    store = harness.store()
    await store.put(BOOK, book("1", isbn="9", tags=["a"]))
    for committed in (False, True):
        async with store.transaction() as tx:
            if committed:
                await tx.put(BOOK, book("3", isbn="7", year=3))
                await tx.add(HITS, 1, page="a")
            with pytest.raises(UniqueError):
                await tx.put(BOOK, book("2", isbn="9", tags=["b"], year=2))
            with pytest.raises(RecordError):
                await tx.put(SLIDING, session(token="t"), ttl=-1)
            assert await tx.get(BOOK, id="2") is None
            assert tx.pending == (5 if committed else 0)
    assert await store.get(BOOK, id="2") is None and await store.get(BOOK, id="3") is not None
    assert not {key for key in await harness.rows() if key.endswith(":2") or key == "year:0002"}
    await clean(store)


@everywhere
async def test_a_rejected_delete_leaves_nothing_in_the_transaction(
    harness: Harness,
) -> None:
    store = harness.store()
    await store.put(BOOK, book("1", shelf="a", tags=["x"]))
    await harness.plant({"shelf:a": b"{"})
    before = await harness.rows()
    async with store.transaction() as tx:
        with pytest.raises(Exception, match="not a list of members"):
            await tx.delete(BOOK, id="1")
        assert await tx.get(BOOK, id="1") is not None
    assert await harness.rows() == before


# Outcomes


@everywhere
async def test_an_unknown_outcome_is_raised_and_a_repeat_with_its_id_applies_once(
    harness: Harness,
) -> None:
    store = harness.store()

    async def hit(tx: Transaction) -> None:
        await tx.add(HITS, 1, page="a")

    for after in (False, True):
        before = await store.get(HITS, page="a") or 0
        lossy = harness.store(
            engine=FaultyEngine(harness.engine, fail(1, UnknownOutcomeError, after=after))
        )
        with pytest.raises(UnknownOutcomeError):
            await lossy.transact(hit, batch_id=f"once {after}")
        await lossy.transact(hit, batch_id=f"once {after}")
        await lossy.transact(hit, batch_id=f"once {after}")
        assert await store.get(HITS, page="a") == before + 1
    async with store.transaction(batch_id="once True") as tx:
        await tx.add(HITS, 1, page="a")
    assert await store.get(HITS, page="a") == 2


@everywhere
async def test_an_engine_that_is_not_there_writes_nothing(harness: Harness) -> None:
    store = harness.store(engine=harness.faulty(fail(1, UnavailableError)))
    with pytest.raises(UnavailableError):
        await store.put(BOOK, book())
    assert await harness.rows() == {}
    await store.put(BOOK, book())


@everywhere
async def test_a_kill_before_or_after_a_commit_leaves_a_whole_state(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("1", series="s", isbn="9", tags=["x"], shelf="a"))
    for after in (False, True):
        for change in (
            book("1", series="t", isbn="8", tags=["y"], shelf="b"),
            book("2", series="s", isbn="7", shelf="a"),
        ):
            with pytest.raises(Killed):
                await harness.store(engine=harness.faulty(fail(1, Killed, after=after))).put(
                    BOOK, change
                )
            await clean(store)


# Limits


@everywhere
async def test_too_many_rows_for_one_commit_raise_and_suggest_a_job(
    harness: Harness,
) -> None:
    store = harness.store()
    with pytest.raises(LimitError, match="resumable job"):
        async with store.transaction() as tx:
            for number in range(COMMIT_ROWS_MAX + 1):
                await tx.add(HITS, 1, page=str(number))
    assert await harness.rows() == {}


@everywhere
async def test_a_batch_id_has_a_limit_too(harness: Harness) -> None:
    store = harness.store()
    for bad in ("", "x" * 129, "\ud800"):
        with pytest.raises(LimitError):
            async with store.transaction(batch_id=bad) as tx:
                await tx.add(HITS, 1, page="a")
    assert await harness.rows() == {}


@everywhere
async def test_a_store_is_used_by_many_tasks_at_once(harness: Harness) -> None:
    store = harness.store(engine=harness.faulty(yields=True))

    async def work(tx: Transaction) -> None:
        number: int = await tx.get(MAP, id="n") or 0
        await tx.put(MAP, number + 1, id="n")

    await asyncio.gather(
        *(store.transact(work) for _ in range(40)), *(store.put(BOOK, book()) for _ in range(20))
    )
    assert await store.get(MAP, id="n") == 40
    await clean(store)


@everywhere
async def test_an_expired_record_that_was_read_is_as_good_as_changed(harness: Harness) -> None:
    """The record is read alive, and its time runs out before the commit: what was decided by it
    does not hold."""
    store = harness.store()
    await store.put(SLIDING, session())
    with pytest.raises(ContentionError):
        async with store.transaction() as tx:
            assert await tx.get(SLIDING, id="1") is not None
            harness.clock.advance(seconds=61)
            await tx.put(MAP, 1, id="n")
    assert await store.lookup(SLIDING, SLIDING_TOKEN, token="t1") is None
    assert await store.get(MAP, id="n") is None


@everywhere
async def test_the_engine_below_is_the_one_contract(harness: Harness) -> None:
    engine = harness.faulty(
        fail(2, UnavailableError, call="read"), fail(1, UnavailableError, call="scan")
    )
    assert engine.capabilities == msgspec.structs.replace(
        harness.engine.capabilities, snapshots=False
    )
    assert engine.clock is harness.clock
    await engine.commit(SPACE, Batch(puts=(Put("k", b"1"),)))
    assert (await engine.read(SPACE, ["k"]))[0] is not None
    with pytest.raises(UnavailableError):
        await engine.read(SPACE, ["k"])
    with pytest.raises(UnavailableError):
        await harness.store(engine=engine).count(BOOK)
    assert [space async for space in engine.spaces()] == [SPACE]
    assert await engine.sweep(limit=10) == 0
    with pytest.raises(ValueError, match="nothing was written"):
        fail(1, UnavailableError, after=True)


@everywhere
async def test_changes_lists_every_row_of_the_commit_with_both_values(harness: Harness) -> None:
    store = harness.store()
    await store.put(MAP, {"n": 1}, id="a")
    await store.put(MAP, {"n": 2}, id="b")
    await store.add(HITS, 3, page="p")
    async with store.transaction() as tx:
        await tx.put(MAP, {"n": 9}, id="a")
        await tx.put(MAP, {"n": 5}, id="c")
        await tx.delete(MAP, id="b")
        await tx.add(HITS, 4, page="p")
        changes = {key: (before, after) for key, before, after in await tx.rows.changes()}
    assert changes["b:map:a"] == (b'{"n":1}', b'{"n":9}')
    assert changes["b:map:b"] == (b'{"n":2}', None)
    assert changes["b:map:c"] == (None, b'{"n":5}')
    assert (b"3", b"7") in changes.values()


@everywhere
async def test_changes_of_a_blind_write_are_checked_by_the_commit(harness: Harness) -> None:
    """A usage counter computes sizes from them: the row must not change before the commit."""
    store, other = harness.store(), harness.store()
    attempts = 0

    async def work(tx: Transaction) -> bytes | None:
        nonlocal attempts
        attempts += 1
        await tx.put(MAP, {"n": 2}, id="a")
        [change] = await tx.rows.changes()
        if attempts == 1:
            await other.put(MAP, {"n": 1}, id="a")
        return change.before

    assert await store.transact(work) == b'{"n":1}'
    assert attempts == 2


def test_a_transaction_has_parts_and_no_bases_and_few_methods() -> None:
    assert Transaction.__bases__ == (object,)
    methods = [name for name in vars(Transaction) if callable(getattr(Transaction, name))]
    assert len([name for name in methods if not name.startswith("_")]) <= 25
