"""Counters that expire, and counters by day: no add is lost, and none outlives its time."""

import asyncio
from datetime import UTC, date, datetime

import pytest

from keyhouse.errors import DeclarationError, UsageError
from keyhouse.schema import Counter, Schema, Space, fixed, sliding
from tests.store.support.harness import Harness, everywhere

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

TRIES = Counter("tries:{name}", expiry=fixed(3_600))
VIEWS = Counter("views:{id}:{day:date}", expiry=fixed(31 * 24 * 3_600))
COUNTERS = Schema("counters", TRIES, VIEWS, space=Space("one"))


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


@everywhere
async def test_a_counter_expires_a_time_after_its_first_add(harness: Harness) -> None:
    store = harness.store(COUNTERS)
    await store.add(TRIES, 1, name="ann")
    harness.clock.advance(milliseconds=HOUR_MS // 2)
    await store.add(TRIES, 1, name="ann")
    assert await store.get(TRIES, name="ann") == 2
    harness.clock.advance(milliseconds=HOUR_MS // 2 - 1)
    assert await store.get(TRIES, name="ann") == 2
    harness.clock.advance(milliseconds=1)
    assert await store.get(TRIES, name="ann") == 0
    await store.add(TRIES, 5, name="ann")
    entry = await store.entry(TRIES, name="ann")
    assert entry is not None
    assert (entry.record, entry.expires) == (5, harness.clock.now() + HOUR_MS)


@everywhere
async def test_an_add_just_before_the_expiry_leaves_no_counter_that_stays(harness: Harness) -> None:
    """The row may expire between read and commit: an add would create one without expiry."""
    store = harness.store(COUNTERS)
    await store.add(TRIES, 1, name="ann")
    harness.clock.advance(milliseconds=HOUR_MS - 1)
    async with store.transaction() as tx:
        await tx.add(TRIES, 1, name="ann")
        checked = {check.key for check in tx.rows.batch().checks}
    assert checked == {"tries:ann"}
    rows = await harness.rows()
    assert rows["tries:ann"] == (b"2", harness.clock.now() + 1)


@everywhere
async def test_concurrent_adds_to_a_counter_that_expires_are_all_counted(harness: Harness) -> None:
    store = harness.store(COUNTERS)
    await asyncio.gather(*(store.add(TRIES, 1, name="ann") for _ in range(50)))
    assert await store.get(TRIES, name="ann") == 50


@everywhere
async def test_a_counter_by_day_sums_the_last_days(harness: Harness) -> None:
    store = harness.store(COUNTERS)
    harness.clock.advance(milliseconds=at("2026-03-01T23:59:59") - harness.clock.now())
    for views in (1, 2, 4, 8):
        await store.add(VIEWS, views, id="a")
        harness.clock.advance(milliseconds=DAY_MS)
    # today is the fifth day, without a view
    assert await store.sum_of_days(VIEWS, 1, id="a") == 0
    assert await store.sum_of_days(VIEWS, 2, id="a") == 8
    assert await store.sum_of_days(VIEWS, 4, id="a") == 14
    assert await store.sum_of_days(VIEWS, 366, id="a") == 15
    assert await store.get(VIEWS, id="a", day=date(2026, 3, 1)) == 1
    harness.clock.advance(milliseconds=29 * DAY_MS)
    assert await store.sum_of_days(VIEWS, 366, id="a") == 8  # the other days have expired


@everywhere
async def test_a_counter_by_day_is_added_to_on_a_given_day(harness: Harness) -> None:
    store = harness.store(COUNTERS)
    async with store.transaction() as tx:
        await tx.add(VIEWS, 3, id="a", day=date(2026, 1, 18))
        await tx.add(VIEWS, 1, id="a", day=date(2026, 1, 18))
    assert await store.get(VIEWS, id="a", day=date(2026, 1, 18)) == 4


@everywhere
async def test_a_sum_of_days_needs_a_counter_by_day(harness: Harness) -> None:
    store = harness.store(COUNTERS)
    with pytest.raises(UsageError, match="does not count by day"):
        await store.sum_of_days(TRIES, 7, name="ann")
    for days in (0, 4_000, True, 1.5):
        with pytest.raises(UsageError, match="1 to 3,660 days"):
            await store.sum_of_days(VIEWS, days, id="a")  # type: ignore[arg-type]


def test_a_counter_expires_after_its_first_add_only() -> None:
    with pytest.raises(DeclarationError, match="after its first add"):
        Counter("tries:{name}", expiry=sliding(60))


def test_a_counter_is_named_by_the_words_of_its_key() -> None:
    assert Counter("op:{id}:next_seq").name == "op_next_seq"
    assert Counter("op:{id}", name="operations").name == "operations"
    with pytest.raises(DeclarationError, match="needs a name"):
        Counter("{id}")
