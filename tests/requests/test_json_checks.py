"""A request has neither too many values nor numbers that are slow to parse, and is checked in
steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import LimitError
from keyhouse.requests import json_checks
from keyhouse.requests.limits import SLOW_NUMBERS_MAX
from keyhouse.schema import document
from tests.support.json_texts import STRINGS, refuses, small, strings, texts

SIZE = 256 * 1_024


@given(text=texts, most=st.integers(1, 60), window=st.integers(1, 40))
def test_the_values_are_those_that_begin_outside_of_strings(
    text: bytes, most: int, window: int
) -> None:
    found = sum(sign in b"[{," for sign in STRINGS.sub(b"", text))
    with small(window=window):
        assert refuses(lambda: list(json_checks.value_checks(text, most))) is (found > most)


def test_a_large_text_is_checked_in_short_steps() -> None:
    """Other tasks run between the steps."""
    steps = list(json_checks.request_checks(b"[]" * (SIZE // 2), values_max=SIZE))
    assert len(steps) >= SIZE // 65_536


def test_too_many_values_are_rejected_before_parsing() -> None:
    """A body of 33 MB of empty lists took 1.4 GB of memory."""
    with pytest.raises(LimitError, match="too many values"):
        list(json_checks.request_checks(b"[" + b"[]," * 1_000 + b"[]]", values_max=1_000))
    list(json_checks.request_checks(b'["' + b"[]," * 1_000 + b'"]', values_max=1_000))


SLOW_NUMBERS = [b"1e-320", b"3.5E-0320", b"1.7976931348623157e308", b"-1.25e+301", b"1e999"]


@pytest.mark.parametrize("number", SLOW_NUMBERS)
def test_numbers_that_are_slow_to_parse_are_rejected_before_parsing(number: bytes) -> None:
    """A body of 99,000 times 1e-320 blocked the event loop for 0.7 s, without a token."""
    some = b"[%s]" % b",".join([b"   " + number] * SLOW_NUMBERS_MAX)
    json_checks.check_request(some)
    list(json_checks.request_checks(some, values_max=SIZE))
    more = some[:-1] + b", " + number + b"]"
    with pytest.raises(LimitError, match="exponent of three digits"):
        json_checks.check_request(more)
    with pytest.raises(LimitError, match="exponent of three digits"):
        list(json_checks.request_checks(more, values_max=SIZE))


def test_long_integers_are_limited_in_a_request_and_stay_readable() -> None:
    """A body of 240 integers of 4,000 digits blocked the event loop for 0.1 s."""
    text = b"[%s]" % b",".join([b"7" * 4_000] * 26)
    with pytest.raises(LimitError, match="thousands of digits"):
        json_checks.check_request(text)
    json_checks.check_request(b"[%s]" % b",".join([b"7" * 4_000] * 24))
    assert len(document.parse(text)) == 26


def test_text_and_usual_numbers_are_not_slow() -> None:
    numbers = b"1e99,-0.12345678901234567,1e-9,12345678901234567890,0,true"
    strings = b'"1e-320","' + b'1e-320 \\"' * 2_000 + b'","' + b"8" * 20_000 + b'"'
    json_checks.check_request(b"[" + b",".join([numbers] * 2_000) + b"," + strings + b"]")


@given(
    parts=st.lists(
        strings.map(str.encode) | st.sampled_from([b"1e-320", b"1e5", b"17", b"1.5e308"])
    ),
    most=st.integers(0, 8),
)
def test_slow_numbers_are_those_outside_of_strings(parts: list[bytes], most: int) -> None:
    text = b"[" + b",".join(parts) + b"]"
    found = sum(part in (b"1e-320", b"1.5e308") for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_checks, "SLOW_NUMBERS_MAX", most)
        patch.setattr(json_checks, "SLOW_TEXT_BYTES", 0)
        assert refuses(lambda: list(json_checks.number_checks(text))) is (found > most)
