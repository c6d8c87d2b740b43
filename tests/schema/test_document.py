"""JSON documents are stored exactly, or rejected if engines would not store them alike."""

import time
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import DocumentError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, INTEGER_DIGITS_MAX
from keyhouse.schema import document, json_guard

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    """Return True if both are equal with the same types: `1` is not `1.0`, nor `-0.0` `0.0`."""
    return repr(one) == repr(other)


@given(value=documents)
def test_a_document_reads_back_as_it_was(value: Any) -> None:
    assert same(document.parse(document.encode(value)), value)


@given(text=st.binary(max_size=40))
def test_any_bytes_are_a_document_or_rejected(text: bytes) -> None:
    try:
        value = document.parse(text)
    except DocumentError:
        return
    assert same(document.parse(document.encode(value)), value)


REFUSED_TEXTS = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "minus Infinity": b"[-Infinity]",
    "1e400": b"1e400",
    "minus 1e400": b'{"a":-1e400}',
    "a lone surrogate": rb'"\ud800"',
    "surrogates in the wrong order": rb'"\udc00\ud800"',
    "half a pair and more text": rb'"\ud800 and more"',
    "a surrogate as UTF-8": b'"\xed\xa0\x80"',
    "not UTF-8": b'"\xff"',
    "a name that is not UTF-8": b'{"\xff":1}',
    "overlong UTF-8": b'"\xc0\xaf"',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without a mark": '"a"'.encode("utf-16-le"),
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "nothing": b"",
    "white space": b" \n",
    "U+0000 outside of a string": b"\0",
    "a raw U+0000 in a string": b'"\0"',
    "cut off": b'{"a":[1,2',
    "two values": b"1 2",
    "a comma too much": b"[1,]",
    "single quotes": b"{'a':1}",
    "a leading zero": b"01",
    "129 lists": b"[" * 129 + b"]" * 129,
    "129 objects": b'{"a":' * 129 + b"1" + b"}" * 129,
    "a million brackets": b"[" * 1_000_000,
    "4,001 digits": b"1" * (INTEGER_DIGITS_MAX + 1),
    "minus 4,001 digits": b"[-" + b"1" * (INTEGER_DIGITS_MAX + 1) + b"]",
}


@pytest.mark.parametrize("text", REFUSED_TEXTS.values(), ids=REFUSED_TEXTS)
def test_hostile_json_text_is_rejected(text: bytes) -> None:
    with pytest.raises(DocumentError):
        document.parse(text)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Link(msgspec.Struct):
    to: "Link | None" = None


@dataclass
class Plain:
    number: float


def chain(links: int) -> Link | None:
    link: Link | None = None
    for _ in range(links):
        link = Link(link)
    return link


REFUSED_VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": [float("inf")],
    "minus infinity": {"a": {"b": float("-inf")}},
    "nan in a struct": Link(float("nan")),  # type: ignore[arg-type]
    "nan in a dataclass": Plain(float("nan")),
    "a lone surrogate": "a\ud800",
    "a lone surrogate in a name": {"\ud800": 1},
    "a number as a name": {1: 2},
    "null as a name": {None: 2},
    "an object": object(),
    "a complex number": 1j,
    "129 levels": nested(129),
    "a structure without end": endless(),
    "a chain of 129 structs": chain(129),
    "a chain of 5,000 structs": chain(5_000),
    "4,001 digits": 10**INTEGER_DIGITS_MAX,
    "minus 4,001 digits": [-(10**INTEGER_DIGITS_MAX)],
    "5,000 digits": 10**5_000,
}


@pytest.mark.parametrize("value", REFUSED_VALUES.values(), ids=REFUSED_VALUES)
def test_hostile_python_values_are_rejected(value: Any) -> None:
    """Nested structs were not counted as levels: a long chain raised RecursionError, a shorter one
    was stored but could not be read. The NaN of a dataclass became null.
    """
    with pytest.raises(DocumentError):
        document.encode(value)


@pytest.mark.parametrize("levels", [1, 127, 128])
def test_nesting_up_to_the_limit_is_accepted(levels: int) -> None:
    assert document.parse(document.encode(nested(levels))) == nested(levels)
    assert document.encode(chain(levels)) == document.encode(
        document.parse(document.encode(chain(levels)))
    )


def test_brackets_in_strings_are_not_levels() -> None:
    for text in ("[" * 1_000, '"[' * 500, "\\" * 501 + "[" * 200, "{" * 200 + "\\"):
        assert document.parse(document.encode([text])) == [text]


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**64), 10**100])
def test_a_whole_number_keeps_every_digit(number: int) -> None:
    """Other parsers silently turn integers beyond 64 bits into floats."""
    assert document.parse(document.encode(number)) == number
    assert document.parse(document.encode([-number])) == [-number]


def test_a_whole_number_of_as_many_digits_as_are_allowed_keeps_them() -> None:
    number = 10**INTEGER_DIGITS_MAX - 1
    assert document.parse(document.encode([number, -number])) == [number, -number]


def test_too_many_digits_are_found_wherever_they_stand() -> None:
    """Only some bytes are sampled."""
    for before in (*range(0, 8_010, 89), 3_999, 4_000, 4_001, 8_001, 8_002):
        for digits in (INTEGER_DIGITS_MAX, INTEGER_DIGITS_MAX + 1):
            text = b"[" + b" " * before + b"7" * digits + b"," + b"1" * 3_000 + b"]"
            if digits > INTEGER_DIGITS_MAX:
                with pytest.raises(DocumentError, match="too many digits"):
                    document.check_text(text)
            else:
                document.check_text(text)


def test_long_runs_of_digits_within_strings_are_text() -> None:
    assert document.parse(b'["' + b"1" * 5_000 + b'"]') == ["1" * 5_000]
    assert document.encode(["1" * 5_000]) == b'["' + b"1" * 5_000 + b'"]'


@pytest.mark.parametrize(
    "text",
    [b"-0.0", b"1.0", b"1", b'{"b":1,"a":2}', b'"\\u0000"', b'{"__proto__":{}}', b"5e-324", b"[]"],
)
def test_numbers_keep_their_kind_and_members_their_order(text: bytes) -> None:
    assert document.encode(document.parse(text)) == text


def test_of_duplicate_members_the_last_wins() -> None:
    assert document.parse(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


def test_ten_thousand_members_are_stored() -> None:
    value = {str(number): number for number in range(10_000)}
    assert document.parse(document.encode(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200 + b'"' + b'\\"' * 190_000,
        b"1" * 5_000 + b'"' + b'\\"' * 190_000,
        b'"' * 380_000 + b"[" * 129,
        b'{"' * 100_000 + b"1" * 5_000,
    ],
    ids=["a string without end", "digits before it", "quotes", "names"],
)
def test_no_text_takes_longer_to_reject_than_to_send(text: bytes) -> None:
    """An unterminated string of escaped quotes was scanned again from each quote: 200 KB blocked
    the event loop for five minutes.
    """
    started = time.thread_time()
    with pytest.raises(DocumentError):
        document.parse(text)
    assert time.thread_time() - started < 2


def test_numbers_as_long_as_may_be_are_counted_once() -> None:
    """Digits were counted again from each digit: 1 MB blocked the event loop for six seconds."""
    started = time.thread_time()
    document.check_text(b"[" + b",".join([b"1" * INTEGER_DIGITS_MAX] * 250) + b"]")
    assert time.thread_time() - started < 2


def test_the_depth_of_a_text_is_the_depth_of_its_value() -> None:
    json_guard.check_depth(b"[]" * 1_000)
    json_guard.check_depth(b"[" * DOCUMENT_DEPTH_MAX)
    with pytest.raises(DocumentError):
        json_guard.check_depth(b"[" * (DOCUMENT_DEPTH_MAX + 1))
