"""Clocks and ULIDs."""

import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.clock import ManualClock, SystemClock, UlidSource, ulid_at, ulid_number, ulid_text
from keyhouse.errors import KeyhouseError, UsageError

numbers = st.integers(0, 2**128 - 1)


@given(number=numbers)
def test_a_ulid_reads_back_as_its_number(number: int) -> None:
    assert ulid_number(ulid_text(number)) == number and len(ulid_text(number)) == 26


@given(pair=st.tuples(numbers, numbers))
def test_ulids_sort_as_their_numbers(pair: tuple[int, int]) -> None:
    assert (ulid_text(pair[0]) < ulid_text(pair[1])) == (pair[0] < pair[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "I" * 26,
        "o" * 26,
        "01arz3ndektsv4rrffq69g5fav",
        "é" * 26,
    ],
)
def test_text_that_is_not_a_ulid_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="ULID"):
        ulid_number(text)


def test_a_ulid_matches_other_implementations() -> None:
    assert ulid_number("01ARZ3NDEKTSV4RRFFQ69G5FAV") >> 80 == 1_469_922_850_259
    assert ulid_text(2**128 - 1) == "7" + "Z" * 25


@given(now=st.integers(0, 2**48 - 1))
def test_the_smallest_ulid_of_a_time_separates_before_from_after(now: int) -> None:
    assert ulid_number(ulid_at(now)) == now << 80
    assert ulid_at(-5) == ulid_at(0)


@given(steps=st.lists(st.integers(-10_000, 10_000), max_size=30))
def test_a_source_increases_even_if_its_clock_steps_back(steps: list[int]) -> None:
    clock = ManualClock()
    source = UlidSource(clock, seed=1)
    drawn = [source.new()]
    for step in steps:
        clock.advance(milliseconds=step)
        drawn.append(source.new())
    assert drawn == sorted(set(drawn))


def test_an_id_is_greater_than_after() -> None:
    source = UlidSource(ManualClock(), seed=1)
    later = ulid_at(ManualClock().now() + 10**9)
    assert source.new(after=later) > later
    assert source.new() > later, "later ids are greater too"


def test_the_greatest_ulid_has_no_successor() -> None:
    source = UlidSource(ManualClock())
    with pytest.raises((KeyhouseError, OverflowError)):
        source.new(after="7" + "Z" * 25)


def test_sources_with_one_seed_generate_the_same_ids_and_others_do_not() -> None:
    clock = ManualClock()
    assert UlidSource(clock, seed=5).new() == UlidSource(clock, seed=5).new()
    assert UlidSource(clock).new() != UlidSource(clock).new()


def test_a_manual_clock_moves_only_by_advance_and_set() -> None:
    clock = ManualClock(1_000)
    assert clock.now() == 1_000
    assert clock.advance(seconds=1.5) == 2_500 and clock.advance(milliseconds=-500) == 2_000
    clock.set(7)
    assert clock.now() == 7


def test_the_system_clock_returns_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now() <= before + 60_000


@pytest.mark.parametrize(
    ("interval", "milliseconds"),
    [
        ({"days": 1}, 86_400_000),
        ({"hours": 2, "minutes": 1}, 7_260_000),
        ({"seconds": 0.25, "milliseconds": 1}, 251),
        ({}, 0),
    ],
)
def test_a_manual_clock_advances_by_the_units_of_a_timedelta(
    interval: dict[str, float], milliseconds: int
) -> None:
    """`advance(days=1)` was a TypeError: only seconds were taken."""
    by_names, by_delta = ManualClock(0), ManualClock(0)
    assert by_names.advance(**interval) == milliseconds
    assert by_delta.advance(timedelta(**interval)) == milliseconds


def test_a_manual_clock_does_not_advance_by_a_number_without_a_unit() -> None:
    with pytest.raises(UsageError, match="needed='timedelta'"):
        ManualClock().advance(30)  # type: ignore[arg-type]
