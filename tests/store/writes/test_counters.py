"""Counters start at 0, stay within their limits, and reject rows that are not counters."""

from typing import Any

import pytest

from keyhouse.errors import (
    CounterError,
    RecordError,
    UnreadableError,
    UsageError,
)
from keyhouse.limits import COUNTER_MAX
from tests.store.support.harness import Harness, everywhere
from tests.store.support.library_schema import (
    HITS,
    MAP,
)

# Counters


@everywhere
async def test_a_counter_counts_from_nothing_in_both_directions(harness: Harness) -> None:
    store = harness.store()
    assert await store.get(HITS, page="a") == 0
    for by in (5, -7, 0):
        await store.add(HITS, by, page="a")
    assert await store.get(HITS, page="a") == -2
    entry = await store.entry(HITS, page="a")
    assert entry is not None and entry.record == -2


@everywhere
async def test_a_counter_that_would_pass_its_bounds_is_left_as_it_is(harness: Harness) -> None:
    store = harness.store()
    await store.put(HITS, COUNTER_MAX, page="a")
    before = await harness.rows()
    with pytest.raises(CounterError):
        await store.add(HITS, 1, page="a")
    async with store.transaction() as tx:
        await tx.put(HITS, COUNTER_MAX, page="a")
        with pytest.raises(CounterError):
            await tx.add(HITS, 1, page="a")
    assert await harness.rows() == before


@everywhere
async def test_a_counter_is_changed_by_a_whole_number_of_64_bits(harness: Harness) -> None:
    bad: list[Any] = [COUNTER_MAX + 1, -COUNTER_MAX - 1, 1.5, True, "1", None]
    for by in bad:
        with pytest.raises(RecordError):
            await harness.store().add(HITS, by, page="a")
    assert await harness.rows() == {}


@everywhere
async def test_only_a_counter_is_added_to(harness: Harness) -> None:
    with pytest.raises(UsageError):
        await harness.store().add(MAP, 1, id="x")  # type: ignore[arg-type]


@everywhere
async def test_an_add_to_a_row_that_is_not_a_counter_is_rejected(harness: Harness) -> None:
    store = harness.store()
    for row in (b'"x"', b"1.5", b"--5", b"007", b"9" * 5_000):
        await harness.plant({"hits:a": row})
        with pytest.raises(CounterError):
            await store.add(HITS, 1, page="a")
        with pytest.raises((CounterError, UnreadableError)):
            async with store.transaction() as tx:
                await tx.add(HITS, 1, page="a")
                await tx.get(HITS, page="a")
        assert (await harness.rows())["hits:a"][0] == row
