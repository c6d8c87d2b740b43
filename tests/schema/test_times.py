"""Times are written in UTC, in seconds or milliseconds, and parsed with any offset."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import DocumentError
from keyhouse.schema import MILLISECONDS, SECONDS

moments = st.integers(-62_135_596_800_000, 253_402_300_799_999)


@given(now=moments)
def test_milliseconds_read_back_as_they_were(now: int) -> None:
    assert MILLISECONDS.parse(MILLISECONDS.format(now)) == now


@given(now=moments)
def test_seconds_read_back_to_the_second(now: int) -> None:
    assert SECONDS.parse(SECONDS.format(now)) == now // 1_000 * 1_000


@given(pair=st.tuples(moments, moments))
def test_times_sort_as_text(pair: tuple[int, int]) -> None:
    one, other = pair
    assert (MILLISECONDS.format(one) < MILLISECONDS.format(other)) == (one < other)


@given(now=moments)
def test_a_datetime_is_read_as_its_text(now: int) -> None:
    moment = datetime.fromisoformat(MILLISECONDS.format(now))
    assert MILLISECONDS.parse(moment) == now


def test_a_datetime_without_a_zone_is_rejected() -> None:
    with pytest.raises(DocumentError, match="has no zone: add tzinfo=UTC"):
        SECONDS.parse(datetime(2026, 1, 18))


def test_the_forms_are_those_of_the_seeds() -> None:
    assert SECONDS.format(1_768_737_600_123) == "2026-01-18T12:00:00Z"
    assert MILLISECONDS.format(1_768_737_600_123) == "2026-01-18T12:00:00.123Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-18T13:00:00+01:00",
        "2026-01-18T12:00:00Z",
        "2026-01-18T12:00:00.000Z",
        "20260118T120000Z",
    ],
)
def test_a_time_is_read_from_any_offset(text: str) -> None:
    assert SECONDS.parse(text) == 1_768_737_600_000


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-18", "2026-01-18T12:00:00", "2026-02-30T00:00:00Z", None, 5]
)
def test_text_that_is_not_a_time_with_a_zone_is_rejected(text: str) -> None:
    with pytest.raises(DocumentError):
        SECONDS.parse(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_a_time_out_of_range_is_rejected(text: str) -> None:
    """A record that expired in the year 10000 was stored, and every list with it failed."""
    with pytest.raises(DocumentError, match="1 to 9999"):
        MILLISECONDS.parse(text)
