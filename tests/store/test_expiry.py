"""A record and its derived rows expire together, by the engine's clock, swept or not."""

from unittest import mock

import pytest

from keyhouse.errors import DocumentError, RecordError, RevisionError, UniqueError, UsageError
from keyhouse.schema import Record
from keyhouse.store import Store, Transaction, sweep, verify
from keyhouse.store.jobs import sweep as sweep_module
from tests.store.support.harness import Harness, all_of, book, clean, everywhere, session
from tests.store.support.library_schema import (
    BOOK,
    FIXED,
    FIXED_TOKEN,
    SLIDING,
    SLIDING_BY_USER,
    SLIDING_TOKEN,
    UNTIL,
    WRITTEN,
    WRITTEN_TOKEN,
    Session,
)

START = 1_767_225_600_000


async def expiries(harness: Harness) -> set[int | None]:
    return {expires for _, expires in (await harness.rows()).values()}


@everywhere
async def test_a_record_and_its_rows_expire_together(harness: Harness) -> None:
    store = harness.store()
    entry = await store.put(SLIDING, session())
    assert entry.expires == START + 60_000 and await expiries(harness) == {START + 60_000}
    harness.clock.advance(milliseconds=59_999)
    assert await store.get(SLIDING, id="1") is not None
    harness.clock.advance(milliseconds=1)
    assert await store.get(SLIDING, id="1") is None and await harness.rows() == {}
    assert await store.lookup(SLIDING, SLIDING_TOKEN, token="t1") is None
    assert await store.count(SLIDING_BY_USER, user="ann") == 0
    await clean(store)


@everywhere
async def test_a_sliding_expiry_moves_with_every_write_and_takes_the_rows_along(
    harness: Harness,
) -> None:
    store = harness.store()
    await store.put(SLIDING, session())
    harness.clock.advance(seconds=50)
    await store.put(SLIDING, session())
    assert await expiries(harness) == {START + 110_000}
    harness.clock.advance(seconds=59)
    await clean(store)
    found = await store.lookup(SLIDING, SLIDING_TOKEN, token="t1")
    assert found is not None and found.expires == START + 110_000


@everywhere
async def test_a_clock_set_back_shows_no_record_in_a_place_that_it_has_left(
    harness: Harness,
) -> None:
    """When the clock stepped back, rows of an expired record returned and listed its successor
    twice.
    """
    store = harness.store()
    await store.put(SLIDING, session())
    harness.clock.advance(seconds=60)
    await store.put(SLIDING, session(user="bob", token="t2"))
    harness.clock.advance(seconds=-30)
    assert [
        entry.record.user for entry in await all_of(store.scan(SLIDING, by=SLIDING_BY_USER))
    ] == ["bob"]
    assert await store.lookup(SLIDING, SLIDING_TOKEN, token="t1") is None
    assert [finding async for finding in verify(store, repair=True)], (
        "what is left over is found, and repaired"
    )
    await clean(store)


@everywhere
async def test_a_deleted_record_leaves_a_unique_row_that_another_holds(harness: Harness) -> None:
    """A successor takes the token of an expired record; for a slow clock both are live. Deleting
    the old one wrote the successor's row again without its expiry, so the token was never free
    again.
    """
    store = harness.store()
    await store.put(WRITTEN, session("1"), ttl=10)
    harness.clock.advance(seconds=10)
    later = await store.put(WRITTEN, session("2", token="t1"), ttl=100)
    harness.clock.advance(seconds=-5)
    assert await store.delete(WRITTEN, id="1")
    found = await store.lookup(WRITTEN, WRITTEN_TOKEN, token="t1")
    assert found is not None and found.values == ("2",)
    assert await expiries(harness) == {later.expires}
    await clean(store)


@everywhere
async def test_a_fixed_expiry_stays_where_the_first_write_put_it(harness: Harness) -> None:
    store = harness.store()
    await store.put(FIXED, session())
    harness.clock.advance(seconds=50)
    await store.put(FIXED, session(user="bob"))
    assert await expiries(harness) == {START + 60_000}
    await clean(store)
    harness.clock.advance(seconds=10)
    assert await store.get(FIXED, id="1") is None
    again = await store.put(FIXED, session())
    assert again.expires == START + 120_000, "a new record has a new time"


@everywhere
async def test_a_fixed_expiry_that_has_passed_only_for_the_transaction_begins_again(
    harness: Harness,
) -> None:
    """The clock was set back after a transaction took its time: its engine still had the row, and
    the put was an error."""
    store = harness.store()
    await store.put(FIXED, session())
    harness.clock.advance(seconds=61)

    async def work(tx: Transaction) -> None:
        harness.clock.advance(seconds=-11)
        await tx.put(FIXED, session(user="bob"))

    await store.transact(work)
    assert await expiries(harness) == {START + 121_000}
    await clean(store)


@everywhere
async def test_an_expiry_of_one_write_holds_until_the_next(harness: Harness) -> None:
    store = harness.store()
    await store.put(WRITTEN, session(), ttl=10)
    assert await expiries(harness) == {START + 10_000}
    await store.put(WRITTEN, session())
    assert await expiries(harness) == {None}
    await store.put(WRITTEN, session(), ttl=5)
    assert await expiries(harness) == {START + 5_000}
    await clean(store)


@everywhere
async def test_an_expiry_at_a_field_follows_the_field(harness: Harness) -> None:
    store = harness.store()
    await store.put(UNTIL, session(until="2026-01-01T00:00:05.000Z"))
    assert await expiries(harness) == {START + 5_000}
    await store.put(UNTIL, session(until="2026-01-01T01:00:09+01:00"))
    assert await expiries(harness) == {START + 9_000}
    await store.put(UNTIL, session())
    assert await expiries(harness) == {None}
    before = await harness.rows()
    with pytest.raises(DocumentError):
        await store.put(UNTIL, session(until="tomorrow"))
    with pytest.raises(RecordError, match="would have expired"):
        await store.put(UNTIL, session(until="2025-12-31T23:59:59Z"))
    assert await harness.rows() == before
    await clean(store)


@everywhere
async def test_a_ttl_overrides_the_declared_expiry(harness: Harness) -> None:
    store = harness.store()
    for record in (SLIDING, FIXED):
        await store.put(record, session(), ttl=5)
        await store.put(record, session(), ttl=500)
    assert await expiries(harness) == {START + 500_000}
    with pytest.raises(UsageError):
        await store.put(UNTIL, session(), ttl=5)
    with pytest.raises(UsageError):
        await store.put(BOOK, book(), ttl=5)


@everywhere
async def test_a_put_over_an_expired_record_is_a_put_of_a_new_one(harness: Harness) -> None:
    """Swept or not: its index rows are absent, its revision does not count, its name is free."""
    store = harness.store()
    old = await store.put(SLIDING, session(user="ann", token="a"))
    harness.clock.advance(seconds=60)
    with pytest.raises(RevisionError):
        await store.put(SLIDING, session(), expect=old.revision)
    new = await store.put(SLIDING, session(user="bob", token="b"), expect=None)
    assert new.expires == START + 120_000
    assert (await harness.rows()).keys() == {"sliding:s:1", "sliding:user:bob:1", "sliding:token:b"}
    await clean(store)
    await store.put(SLIDING, session("2", token="a"))
    await sweep(harness.engine)
    await clean(store)


@everywhere
async def test_a_unique_value_is_free_as_soon_as_its_holder_expires(harness: Harness) -> None:
    store = harness.store()
    await store.put(FIXED, session("1", token="t"))
    with pytest.raises(UniqueError):
        await store.put(FIXED, session("2", token="t"))
    harness.clock.advance(seconds=60)
    await store.put(FIXED, session("2", token="t"))
    found = await store.lookup(FIXED, FIXED_TOKEN, token="t")
    assert found is not None and found.record.id == "2"
    await clean(store)


@everywhere
async def test_a_record_may_lose_its_expiry_and_keep_its_name(harness: Harness) -> None:
    store = harness.store()
    await store.put(WRITTEN, session("1", token="t"), ttl=5)
    await store.put(WRITTEN, session("1", token="t"))
    harness.clock.advance(seconds=10)
    with pytest.raises(UniqueError):
        await store.put(WRITTEN, session("2", token="t"))
    found = await store.lookup(WRITTEN, WRITTEN_TOKEN, token="t")
    assert found is not None and found.record.id == "1"


@everywhere
async def test_a_clock_that_steps_back_brings_no_row_back_wrongly(harness: Harness) -> None:
    store = harness.store()
    await store.put(SLIDING, session())
    harness.clock.advance(seconds=60)
    assert await store.get(SLIDING, id="1") is None
    harness.clock.advance(seconds=-30)
    assert await store.get(SLIDING, id="1") is not None, (
        "not swept: its time is not over by this clock"
    )
    await clean(store)
    harness.clock.advance(seconds=30)
    assert await sweep(harness.engine) == 3
    harness.clock.advance(seconds=-30)
    assert await store.get(SLIDING, id="1") is None
    await clean(store)


# The sweep


async def fill(store: Store, records: list[Record[Session]], count: int) -> None:
    for record in records:
        for number in range(count):
            await store.put(record, session(f"{number:03d}"))


@everywhere
async def test_the_sweep_deletes_only_expired_rows_in_bounded_steps(
    harness: Harness,
) -> None:
    store = harness.store()
    await fill(store, [SLIDING], 20)
    await store.put(BOOK, book())
    await store.put(SLIDING, session("new"), ttl=600)
    harness.clock.advance(seconds=60)
    engine = harness.faulty()
    reported: list[int] = []
    with mock.patch.object(sweep_module, "CHUNK_ROWS", 7):
        assert await sweep(engine, on_progress=reported.append) == 60
    assert reported == [7, 14, 21, 28, 35, 42, 49, 56, 60] and engine.calls["sweep"] == 9
    assert await sweep(engine) == 0
    assert len(await harness.rows()) == 6
    await clean(store)


@everywhere
async def test_the_sweep_ends_when_a_step_finds_less_than_it_may(harness: Harness) -> None:
    engine = harness.faulty()
    assert await sweep(engine) == 0 and engine.calls["sweep"] == 1


@everywhere
async def test_a_sweep_is_of_all_spaces(harness: Harness) -> None:
    for space in ("a", "b"):
        await harness.store(space=space).put(SLIDING, session())
    harness.clock.advance(seconds=60)
    assert await all_of(harness.engine.spaces()) == []
    assert await sweep(harness.engine) == 6


@everywhere
async def test_a_sweep_with_a_budget_stops_once_it_is_used_up(harness: Harness) -> None:
    store = harness.store()
    for number in range(6):
        await store.put(WRITTEN, session(str(number)), ttl=1)
    harness.clock.advance(seconds=2)
    assert await sweep(harness.engine, rows_max=3) == 3
    await sweep(harness.engine)
    assert await sweep(harness.engine, rows_max=3) == 0


@everywhere
async def test_a_ttl_can_be_a_fraction_of_a_second(harness: Harness) -> None:
    store = harness.store()
    written = await store.put(WRITTEN, session("1"), ttl=0.25)
    assert written.expires == harness.clock.now() + 250
    harness.clock.advance(milliseconds=249)
    assert await store.get(WRITTEN, id="1") is not None
    harness.clock.advance(milliseconds=1)
    assert await store.get(WRITTEN, id="1") is None
    written = await store.put(WRITTEN, session("2"), ttl=1.5)
    updated = await store.update(WRITTEN, {"user": "bo"}, id="2")
    assert updated.expires == written.expires
