"""Random values of every segment type, and random templates."""

import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

from keyhouse.keys import (
    NATS,
    PLAIN,
    Choice,
    Day,
    Descending,
    Escape,
    FixedPoint,
    Integer,
    NormalizedText,
    OptionalSegment,
    Regex,
    Segment,
    Template,
    TextSegment,
    Timestamp,
    Ulid,
    normal,
)
from keyhouse.keys.ranges import KeyRange

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

ODD = [
    *":/|_-.%=~#&^[]\\$*+?()<>@!'\"`;, ",
    "\n",
    "\r",
    "\t",
    "é",
    "İ",
    "ß",
    "\ufb01",
    "\u200b",
    "\u202e",
    "\ud7ff",
]
ODD += [
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
    "0",
    "9",
    "A",
    "F",
    "null",
    "%3A",
    "%25",
    "=2E",
    "..",
    "ﬀ",
]
"""Texts that break key builders: delimiters, marks, escapes, code points at range limits."""

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.lists(
    st.one_of(st.sampled_from(ODD), st.text(characters, max_size=3)), min_size=1, max_size=4
).map("".join)
plain_texts = texts.filter(bool)
ulids = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from("01234567"),
    st.text(CROCKFORD, min_size=25, max_size=25),
)
days = st.dates(min_value=date(1, 1, 1), max_value=date(9999, 12, 31))
times = st.integers(0, 9_999_999_999_999).map(
    lambda milliseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
)


class Kind(NamedTuple):
    """One segment type, a strategy for its values, and the parsed form of a value."""

    name: str
    segment: Segment
    values: st.SearchStrategy[Any]
    reads_as: Callable[[Any], Any] = lambda value: value


def _null_safe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


KINDS = [
    Kind("text", TextSegment(), plain_texts),
    Kind("short text", TextSegment(chars_max=8), plain_texts.filter(lambda text: len(text) <= 8)),
    Kind("norm", NormalizedText(), plain_texts.filter(lambda text: bool(normal(text))), normal),
    Kind("ulid", Ulid(), ulids),
    Kind("integer", Integer(4), st.integers(0, 9_999)),
    Kind(
        "scaled",
        FixedPoint(7, 3),
        st.integers(0, 9_999_999).map(lambda whole: Decimal(whole).scaleb(-3)),
        float,
    ),
    Kind(
        "choice",
        Choice("a", "ab", "b:c", "null", "x_y"),
        st.sampled_from(["a", "ab", "b:c", "null", "x_y"]),
    ),
    Kind(
        "match",
        Regex("[a-z_]{1,6}", without=("__",)),
        st.from_regex("[a-y]{1,6}", fullmatch=True),
    ),
    Kind("date", Day(), days),
    Kind("time", Timestamp(), times),
    Kind("-time", Descending(Timestamp()), times),
    Kind("-integer", Descending(Integer(4)), st.integers(0, 9_999)),
    Kind("ulid?", OptionalSegment(Ulid()), _null_safe(ulids)),
    Kind("integer?", OptionalSegment(Integer(4)), _null_safe(st.integers(0, 9_999))),
    Kind(
        "text?",
        OptionalSegment(TextSegment()),
        _null_safe(plain_texts.filter(lambda text: text != "null")),
    ),
]

BY_NAME = {kind.name: kind for kind in KINDS}

literals = st.one_of(
    st.sampled_from(
        [
            ":",
            "/",
            "|",
            "_",
            "-",
            ".",
            " ",
            "\n",
            "::",
            ":x:",
            "é",
            "#",
            "]",
            "\\",
            "^",
            "*",
            "+x",
            "~",
        ]
    ),
    st.sampled_from(["=", "$", "?", "(", "/a/", "&", "\U0001f600", "_streamkit_", "z"]),
)
nats_literals = st.sampled_from(["/", "/x/", "/a.b/"])


class Drawn(NamedTuple):
    template: Template
    kinds: list[Kind]

    def read(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the parsed form of these values."""
        return {
            name: kind.reads_as(values[name])
            for name, kind in zip(self.template.fields, self.kinds, strict=True)
        }


@st.composite
def templates(
    draw: st.DrawFn,
    *,
    fields_max: int = 4,
    kinds: list[Kind] | None = None,
    first: Kind | None = None,
) -> Drawn:
    """Draw templates as authors write them: fields separated by literals, in either alphabet."""
    escape: Escape = draw(st.sampled_from([PLAIN, PLAIN, PLAIN, NATS]))
    chosen = draw(st.lists(st.sampled_from(kinds or KINDS), min_size=1, max_size=fields_max))
    if first is not None:
        chosen[0] = first
    divider = literals if escape is PLAIN else nats_literals
    text = draw(
        st.sampled_from(["", "b:", "idx:x:", "k/"])
        if escape is PLAIN
        else st.sampled_from(["", "k/"])
    )
    segments: dict[str, Segment] = {}
    for index, kind in enumerate(chosen):
        name = string.ascii_lowercase[index]
        segments[name] = kind.segment
        last = index == len(chosen) - 1
        text += "{" + name + "}" + ("" if last and draw(st.booleans()) else draw(divider))
    return Drawn(Template(text, escape=escape, **segments), chosen)


@st.composite
def values_of(draw: st.DrawFn, drawn: Drawn) -> dict[str, Any]:
    return {
        name: draw(kind.values)
        for name, kind in zip(drawn.template.fields, drawn.kinds, strict=True)
    }


@st.composite
def mutations(draw: st.DrawFn, key: str) -> str:
    """Draw a slightly damaged key, as a program that builds keys by hand might write it."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(key)))
        cut = draw(st.integers(0, 2))
        key = (
            key[:at]
            + draw(st.one_of(st.just(""), st.sampled_from(ODD), st.text(characters, max_size=2)))
            + key[at + cut :]
        )
    return key


def covers(template: Template, found: KeyRange, key: str) -> bool:
    """Return whether a scan of the range returns the key."""
    if key not in found.span:
        return False
    return found.accepts is None or found.accepts((template.parse(key) or {})[found.field])
