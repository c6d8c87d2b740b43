"""The JSON guard gives the same results as a check of every byte, in a fraction of the time."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import DocumentError, LimitError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, SLOW_NUMBERS_MAX
from keyhouse.schema import document, json_guard

STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

strings = st.lists(st.sampled_from(["a", "1", "7" * 8, "[", "}", ",", '\\"', "\\\\", "\\n"])).map(
    lambda parts: '"' + "".join(parts) + '"'
)
between = st.sampled_from([*"[]{},:1- ", "[[[[", "]]]]", "[]", "7" * 8, "123456", "1234567"])
texts = st.builds(
    lambda parts, end: ("".join(parts) + end).encode(),
    st.lists(strings | between, max_size=60),
    st.sampled_from(["", '"', '"[[[[', '"\\', '"7777777']),
)
"""Strings and the text between them; the last string may be unterminated."""

anything = st.lists(st.sampled_from([*'[]{}",:\\ 1a', "[[[[", "7" * 8]), max_size=60).map(
    lambda some: "".join(some).encode()
)


def is_too_deep(text: bytes, most: int) -> bool:
    """Compute the depth bracket by bracket."""
    depth = 0
    for sign in STRINGS.sub(b"", text):
        depth += (sign in b"[{") - (sign in b"]}")
        if depth > most:
            return True
    return False


def has_endless_digits(text: bytes, most: int) -> bool:
    return re.search(rb"[0-9]{%d}" % (most + 1), STRINGS.sub(b'""', text)) is not None


def refuses(check: Callable[[], object]) -> bool:
    try:
        check()
    except (DocumentError, LimitError):
        return True
    return False


@contextmanager
def small(*, window: int = 65_536, digits: int = 4_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_guard, "_WINDOW_BYTES", window)
        patch.setattr(json_guard, "INTEGER_DIGITS_MAX", digits)
        yield


@given(text=texts, most=st.integers(0, 12), window=st.integers(1, 40))
def test_the_depth_is_that_of_a_look_at_each_bracket(text: bytes, most: int, window: int) -> None:
    with small(window=window):
        refused = refuses(
            lambda: json_guard.check_depth(text, envelope_levels=most - DOCUMENT_DEPTH_MAX)
        )
    assert refused is is_too_deep(text, most)


@given(text=texts, digits=st.integers(4, 12))
def test_the_digits_are_those_of_a_look_at_each(text: bytes, digits: int) -> None:
    with small(digits=digits):
        assert refuses(lambda: json_guard.check_digits(text)) is has_endless_digits(text, digits)


@given(text=texts, most=st.integers(1, 60), window=st.integers(1, 40))
def test_the_values_are_those_that_begin_outside_of_strings(
    text: bytes, most: int, window: int
) -> None:
    found = sum(sign in b"[{," for sign in STRINGS.sub(b"", text))
    with small(window=window):
        assert refuses(lambda: list(json_guard.value_checks(text, most))) is (found > most)


@given(text=anything, window=st.integers(1, 40))
def test_invalid_json_is_rejected_unchanged(text: bytes, window: int) -> None:
    """An escape outside of a string may give another result: a parser stops there."""
    with small(window=window):
        refused = refuses(lambda: document.parse(text))
    assert refused is (refuses_slowly(text))


def refuses_slowly(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return is_too_deep(text, DOCUMENT_DEPTH_MAX)


SIZE = 256 * 1_024

HOSTILE = {
    "pairs": b"[]" * (SIZE // 2),
    "pairs at the last level": b"[" * 127 + b"[]," * (SIZE // 3),
    "as deep as may be, again and again": (b"[" * 128 + b"]" * 128) * (SIZE // 256),
    "objects": b'{"a":1},' * (SIZE // 8),
    "strings of brackets": b'"[",[],' * (SIZE // 7),
    "strings of escapes": b'"\\\\",[],' * (SIZE // 8),
    "digits in a string behind strings": b'"",' * (SIZE // 3)
    + b'"'
    + b"1" * 5_000
    + b'"'
    + b"[]" * 129,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_is_looked_at_byte_by_byte(text: bytes) -> None:
    """A loop over brackets blocked the event loop for 1 to 3 seconds with a body of 33 MB."""
    passed = min(seconds(lambda: document.check_text(text)) for _ in range(3))
    assert (
        passed < min(seconds(lambda: is_too_deep(text, DOCUMENT_DEPTH_MAX)) for _ in range(2)) / 2
    )


def seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def test_a_large_text_is_checked_in_short_steps() -> None:
    """Other tasks run between the steps."""
    steps = list(document.text_checks(HOSTILE["pairs"], values_max=SIZE))
    assert len(steps) >= SIZE // 65_536


def test_text_nested_too_deep_is_rejected_at_once() -> None:
    """All strings were removed first, in one step."""
    text = b'{"a":' * (SIZE // 5)
    assert len(list(json_guard.outside(text, b""))) == SIZE // 65_536
    with pytest.raises(DocumentError, match="nested too deep"):
        next(json_guard.depth_checks(text))


def test_too_many_values_are_rejected_before_parsing() -> None:
    """A body of 33 MB of empty lists took 1.4 GB of memory."""
    with pytest.raises(LimitError, match="too many values"):
        list(document.text_checks(b"[" + b"[]," * 1_000 + b"[]]", values_max=1_000))
    list(document.text_checks(b'["' + b"[]," * 1_000 + b'"]', values_max=1_000))


SLOW_NUMBERS = [b"1e-320", b"3.5E-0320", b"1.7976931348623157e308", b"-1.25e+301", b"1e999"]


@pytest.mark.parametrize("number", SLOW_NUMBERS)
def test_numbers_that_are_slow_to_parse_are_rejected_before_parsing(number: bytes) -> None:
    """A body of 99,000 times 1e-320 blocked the event loop for 0.7 s, without a token."""
    some = b"[%s]" % b",".join([b"   " + number] * SLOW_NUMBERS_MAX)
    document.check_request(some)
    list(document.text_checks(some, values_max=SIZE))
    more = some[:-1] + b", " + number + b"]"
    with pytest.raises(LimitError, match="exponent of three digits"):
        document.check_request(more)
    with pytest.raises(LimitError, match="exponent of three digits"):
        list(document.text_checks(more, values_max=SIZE))


def test_long_integers_are_limited_in_a_request_and_stay_readable() -> None:
    """A body of 240 integers of 4,000 digits blocked the event loop for 0.1 s."""
    text = b"[%s]" % b",".join([b"7" * 4_000] * 26)
    with pytest.raises(LimitError, match="thousands of digits"):
        document.check_request(text)
    document.check_request(b"[%s]" % b",".join([b"7" * 4_000] * 24))
    assert len(document.parse(text)) == 26


def test_text_and_usual_numbers_are_not_slow() -> None:
    numbers = b"1e99,-0.12345678901234567,1e-9,12345678901234567890,0,true"
    strings = b'"1e-320","' + b'1e-320 \\"' * 2_000 + b'","' + b"8" * 20_000 + b'"'
    document.check_request(b"[" + b",".join([numbers] * 2_000) + b"," + strings + b"]")


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
        patch.setattr(json_guard, "SLOW_NUMBERS_MAX", most)
        patch.setattr(json_guard, "_SLOW_TEXT_BYTES", 0)
        assert refuses(lambda: list(json_guard.number_checks(text))) is (found > most)
