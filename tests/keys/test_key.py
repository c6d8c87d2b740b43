"""Spans contain exactly their keys, up to the limits of Unicode; keys are valid text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import KeyFieldError
from keyhouse.keys import Span, check_key
from keyhouse.limits import KEY_BYTES_MAX
from tests.keys import strategies as keys

EDGES = [
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "a\ud7ff",
    "a\U0010ffff",
    "\U0010ffff\U0010ffff",
    "a\U0010ffff\U0010ffff",
    "",
    "a",
]
edges = st.sampled_from(EDGES) | keys.texts


@given(prefix=edges, key=edges, more=edges)
def test_a_prefix_span_holds_the_keys_that_start_with_it_and_no_other(
    prefix: str, key: str, more: str
) -> None:
    for each in (key, prefix, prefix + more, key + prefix):
        assert (each in Span.prefix(prefix)) == each.startswith(prefix)


@given(prefix=edges)
def test_the_end_of_a_prefix_span_is_text(prefix: str) -> None:
    """The code point after U+D7FF is a surrogate, which no engine accepts."""
    stop = Span.prefix(prefix).stop
    assert stop is None or stop.encode()


@given(key=edges.filter(bool), other=edges.filter(bool))
def test_the_span_of_one_key_holds_only_that_key(key: str, other: str) -> None:
    assert (other in Span.only(key)) == (other == key)


@given(span=st.tuples(edges, edges), seen=edges.filter(bool), key=edges.filter(bool))
def test_the_span_after_or_before_a_key_is_the_rest(
    span: tuple[str, str], seen: str, key: str
) -> None:
    start, stop = sorted(span)
    for whole in (Span(start, stop), Span(start)):
        assert (key in whole.after(seen)) == (key in whole and key > seen)
        assert (key in whole.before(seen)) == (key in whole and key < seen)


@given(pair=st.tuples(keys.texts, keys.texts))
def test_the_order_of_python_text_is_the_order_of_utf_8(pair: tuple[str, str]) -> None:
    one, other = pair
    assert (one < other) == (one.encode() < other.encode())


@pytest.mark.parametrize(
    "key",
    ["", "a\0b", "\ud800", "a\udfffb", "x" * (KEY_BYTES_MAX + 1), "é" * (KEY_BYTES_MAX // 2 + 1)],
)
def test_text_that_no_engine_stores_is_not_a_key(key: str) -> None:
    with pytest.raises(KeyFieldError):
        check_key(key)


@pytest.mark.parametrize(
    "key",
    ["x", "x" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2), "\u202e", "a\nb", "__proto__", "../"],
)
def test_a_key_within_the_limit_is_counted_in_bytes(key: str) -> None:
    assert check_key(key) == len(key.encode())
