"""The JSON guard gives the same results as a check of every byte, in a fraction of the time."""

import re
import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import DocumentError
from keyhouse.limits import DOCUMENT_DEPTH_MAX
from keyhouse.schema import document, json_guard
from tests.support.json_texts import STRINGS, refuses, small, texts

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


def test_text_nested_too_deep_is_rejected_at_once() -> None:
    """All strings were removed first, in one step."""
    text = b'{"a":' * (SIZE // 5)
    assert len(list(json_guard.outside(text, b""))) == SIZE // 65_536
    with pytest.raises(DocumentError, match="nested too deep"):
        next(json_guard.depth_checks(text))
