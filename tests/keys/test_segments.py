"""Laws of the segment types: values round-trip, texts are canonical, the order is as promised."""

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.clock import ulid_text
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys import (
    FixedPoint,
    NormalizedText,
    Regex,
    Segment,
    Template,
    TextSegment,
    normal,
    segment,
)
from tests.keys import strategies as keys

TAILS = ["", ":", "/", "|", "_", "-", ".", "\n", "]", "\\", "^", "é", "z"]


def test_text_at_the_end_of_a_key_is_written_as_another_text_was_read() -> None:
    texts, numbers, normals = (
        Template(pattern).segments[0] for pattern in ("{x}", "{x:04d}", "{x:norm}")
    )
    assert texts.writes_unchanged(texts)
    assert not texts.writes_unchanged(numbers) and not texts.writes_unchanged(normals)


def at_end_of(kind: keys.Kind, tail: str) -> Segment:
    return Template("{x}" + tail, x=kind.segment).segments[0]


@pytest.mark.parametrize("kind", keys.KINDS, ids=lambda kind: kind.name)
@given(data=st.data(), tail=st.sampled_from(TAILS))
def test_a_formatted_value_matches_the_pattern_and_parses_back(
    kind: keys.Kind, data: st.DataObject, tail: str
) -> None:
    template = Template("{x}" + tail, x=kind.segment)
    value = data.draw(kind.values)
    assert template.parse(template.build({"x": value})) == {"x": kind.reads_as(value)}


@pytest.mark.parametrize("kind", keys.KINDS, ids=lambda kind: kind.name)
@given(data=st.data(), tail=st.sampled_from(TAILS))
def test_every_parsed_text_is_the_formatted_one(
    kind: keys.Kind, data: st.DataObject, tail: str
) -> None:
    template = Template("{x}" + tail, x=kind.segment)
    key = data.draw(keys.mutations(template.build({"x": data.draw(kind.values)})))
    read = template.parse(key)
    if read is not None:
        assert template.build(read) == key


@pytest.mark.parametrize("kind", keys.KINDS, ids=lambda kind: kind.name)
@given(
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.dates(),
        st.datetimes(),
    )
)
def test_any_value_is_formatted_or_rejected_by_name(kind: keys.Kind, value: object) -> None:
    template = Template("{x}:", x=kind.segment)
    try:
        key = template.build({"x": value})
    except KeyFieldError as refusal:
        assert refusal.fields["field"] == "x" or "key" in refusal.fields
    else:
        read = template.parse(key)
        assert read is not None
        assert read == {"x": kind.reads_as(value)}


NONSENSE: list[tuple[str, Any]] = [
    ("text", ""),
    ("text", "a\0b"),
    ("text", "a\ud800"),
    ("text", b"bytes"),
    ("text", 5),
    ("text", None),
    ("norm", " \t\n"),
    ("norm", "\u3000"),
    ("norm", ""),
    ("ulid", "01arz3ndektsv4rrffq69g5fav"),
    ("ulid", "81ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FA"),
    ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAI"),
    ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAV\n"),
    ("ulid", None),
    ("04d", -1),
    ("04d", 10_000),
    ("04d", 1.0),
    ("04d", True),
    ("04d", "0001"),
    ("04d", 10**5_000),
    ("07.3f", -0.001),
    ("07.3f", 10_000),
    ("07.3f", 1.0001),
    ("07.3f", float("nan")),
    ("07.3f", float("inf")),
    ("07.3f", 1e300),
    ("07.3f", Decimal("sNaN")),
    ("07.3f", Decimal("1e9999999")),
    ("07.3f", Decimal("1e-9999999")),
    ("07.3f", True),
    ("07.3f", "1.5"),
    ("07.3f", 10**5_000),
    ("a|b", "c"),
    ("a|b", "A"),
    ("a|b", ["a"]),
    ("a|b", None),
    ("date", "2026-01-18"),
    ("date", datetime(2026, 1, 18)),
    ("date", None),
    ("text?", "null"),
    ("norm?", " NULL "),
    ("ulid?", ""),
    ("04d?", -1),
]


@pytest.mark.parametrize(
    ("spec", "value"), NONSENSE, ids=[f"{spec} {at}" for at, (spec, _) in enumerate(NONSENSE)]
)
def test_an_invalid_value_is_rejected_with_its_field(spec: str, value: Any) -> None:
    template = Template("k:{first:04d}:{second:" + spec + "}")
    with pytest.raises(KeyFieldError) as refused:
        template.build({"first": 1, "second": value})
    assert refused.value.fields["field"] == "second"
    assert str(refused.value), "the refusal can be shown, whatever the value"


def test_a_missing_field_is_rejected_by_name() -> None:
    with pytest.raises(KeyFieldError) as refused:
        Template("k:{first}:{second}").build({"first": "1"})
    assert refused.value.fields["field"] == "second"


@given(pair=st.tuples(st.integers(0, 9_999), st.integers(0, 9_999)))
def test_padded_integers_sort_as_numbers(pair: tuple[int, int]) -> None:
    one, other = (Template("{n:04d}").build({"n": number}) for number in pair)
    assert (one < other) == (pair[0] < pair[1])


scaled = st.none() | st.integers(0, 9_999_999).map(lambda whole: whole / 1_000)


@given(pair=st.tuples(scaled, scaled))
def test_fixed_point_numbers_sort_as_numbers_and_null_comes_last(
    pair: tuple[float | None, float | None],
) -> None:
    one, other = (Template("{n:07.3f?}:").build({"n": number}) for number in pair)
    expected = pair[0] is not None and (pair[1] is None or pair[0] < pair[1])
    assert (one < other) == expected


@given(pair=st.tuples(keys.days, keys.days))
def test_days_sort_as_days(pair: tuple[date, date]) -> None:
    one, other = (Template("{d:date}").build({"d": day}) for day in pair)
    assert (one < other) == (pair[0] < pair[1])


@given(pair=st.tuples(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1)))
def test_ulids_sort_as_their_numbers_and_null_comes_last(pair: tuple[int, int]) -> None:
    one, other = (Template("{u:ulid?}").build({"u": ulid_text(number)}) for number in pair)
    assert (one < other) == (pair[0] < pair[1])
    assert one < Template("{u:ulid?}").build({"u": None})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "0001500"),
        (0, "0000000"),
        (-0.0, "0000000"),
        (Decimal("9999.999"), "9999999"),
        (0.1, "0000100"),
        (1e3, "1000000"),
    ],
)
def test_a_fixed_point_number_is_written_exactly(value: object, text: str) -> None:
    assert Template("{n:07.3f}").build({"n": value}) == text


def test_too_many_decimals_are_rejected_and_not_rounded() -> None:
    """Decimal multiplication rounds to 28 digits: slightly more than 1.5 was written as 1.5."""
    with pytest.raises(KeyFieldError, match="at most 3 decimals"):
        Template("{n:010.3f}").build({"n": Decimal("1.50000000000000000000000000000001")})


def test_a_fixed_point_type_wider_than_a_float_is_rejected_when_declared() -> None:
    """A float has 15 digits: `12345678901234567890`, parsed and formatted, was another key."""
    with pytest.raises(DeclarationError):
        Template("{n:020.3f}")
    widest = Template("{n:015.3f}")
    assert widest.build(widest.parse("999999999999999") or {}) == "999999999999999"


@pytest.mark.parametrize("spec", ["00d", "00.0f", "0d", "d", "ulyd", "04f", "4d", "04d!", "a,b"])
def test_an_unknown_segment_type_is_rejected_when_declared(spec: str) -> None:
    """`00d`, no digit at all, was once accepted: its pattern matches none of its texts."""
    with pytest.raises(DeclarationError):
        segment(spec)


def test_a_regex_field_rejects_u_0000_even_if_its_pattern_matches_it() -> None:
    """`[^:]+` matches U+0000, and a short ASCII key is not checked again: it reached the engine."""
    template = Template("k:{x}", x=Regex("[^:]*"))
    for value in ("a\0b", "\ud800"):
        with pytest.raises(KeyFieldError):
            template.build({"x": value})


def test_a_regex_with_capturing_groups_is_rejected_when_declared() -> None:
    """Its groups were counted as fields of the template: no key could be parsed."""
    with pytest.raises(DeclarationError):
        Regex("(a|b)+")


def test_a_regex_that_matches_the_empty_text_builds_no_empty_key() -> None:
    with pytest.raises(KeyFieldError):
        Template("{x}", x=Regex("[a-z]*")).build({"x": ""})


def test_a_regex_rejects_excluded_text_that_spans_the_next_literal() -> None:
    """In customer `12_streamkit` followed by `_streamkit_…`, the delimiter is found too early."""
    template = Template(
        "cust_{customer}_streamkit_{id}",
        customer=Regex("[A-Za-z0-9_-]{1,64}", without=("_streamkit_",)),
    )
    assert template.build({"customer": "12_stream", "id": "1"}) == "cust_12_stream_streamkit_1"
    for hostile in ("12_streamkit", "12_streamkit_notes", "_streamkit_", "a_streamkit_streamkit_b"):
        with pytest.raises(KeyFieldError):
            template.build({"customer": hostile, "id": "1"})


def test_a_regex_may_be_followed_by_text_that_it_excludes() -> None:
    """Excluded text may occur in the literal after the field: only text that includes the value
    counts.
    """
    template = Template("c_{x}__k_{y}", x=Regex("[a-z_]+", without=("_k_",)))
    assert template.build({"x": "abc", "y": "1"}) == "c_abc__k_1"


@given(text=st.text())
def test_the_normal_form_is_one_form(text: str) -> None:
    once = normal(text)
    assert normal(once) == once
    assert (
        normal(text.upper().lower()) == normal(text.lower().upper().lower()) or not text.isascii()
    )


@pytest.mark.long
def test_the_normal_form_of_every_character_is_reached_and_stays() -> None:
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            once = normal(chr(code))
            assert normal(once) == once, hex(code)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("  The  Hobbit\t", "the hobbit"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("ﬁsh", "fish"),
        ("Ａ１", "a1"),
    ],
)
def test_names_that_differ_only_in_case_width_or_spacing_are_one_key(text: str, form: str) -> None:
    assert Template("n:{name:norm}").build({"name": text}) == f"n:{form}"


def test_nfc_and_nfd_are_two_keys_as_text_and_one_as_normal_text() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert Template("{x}").build({"x": composed}) != Template("{x}").build({"x": decomposed})
    assert Template("{x:norm}").build({"x": composed}) == Template("{x:norm}").build(
        {"x": decomposed}
    )


def test_text_counts_its_characters_before_they_are_escaped() -> None:
    template = Template("{x}:", x=TextSegment(chars_max=3))
    assert template.build({"x": ":::"}) == "%3A%3A%3A:"
    with pytest.raises(KeyFieldError, match="4 characters"):
        template.build({"x": "abcd"})


@pytest.mark.parametrize("kind", keys.KINDS, ids=lambda kind: kind.name)
def test_a_segment_has_a_description(kind: keys.Kind) -> None:
    assert kind.segment.description
    assert at_end_of(kind, ":").description


def test_the_beginning_of_normal_text_keeps_a_space_that_divides_words() -> None:
    assert NormalizedText().format_prefix("The ") == ("the ", True)
    assert NormalizedText().format_prefix("  ") == ("", True)


class Kind(str, Enum):  # noqa: UP042  # the str() of a StrEnum is its text
    PODCAST = "podcast"


def test_a_choice_writes_the_text_of_an_enum_and_not_its_name() -> None:
    """`str()` of such an Enum is `Kind.PODCAST`, which was written to the key."""
    template = Template("k:{kind:book|podcast}")
    assert template.build({"kind": Kind.PODCAST}) == "k:podcast"


def test_a_fixed_point_number_without_decimals_parses_as_an_int() -> None:
    assert FixedPoint(4, 1).parse("0010") == 1
    assert FixedPoint(4, 1).parse("0015") == 1.5
