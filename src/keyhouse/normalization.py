"""Unicode normalization of text from outside, in time that grows with its length. Pure.

The only module that calls `unicodedata.normalize`, which has two traps. It sorts each run of
combining marks by insertion: 100,000 marks take half a minute, with the GIL held. And it expands:
U+FDFA becomes 18 characters. So a run has at most 30 marks (Unicode's stream-safe text, UAX 15),
a text a number of characters, and a normal form at most a multiple of them.

`normalized` rejects other text: for names and keys. `stream_safe` and `pieces` prepare any text for
`normal_form`: for text that is searched, which must not fail a scan of somebody else's files.

A mark is a character whose decomposition is all marks. Five have the combining class 0 themselves,
so the class alone is not enough. Every 31st character is looked at: a longer run has one of them.

`is_visible` and `has_controls` tell a name that people can read from one that they cannot.
`account_name` is the one rule for names of accounts: two that look the same are the same text.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal
from unicodedata import category, combining, normalize

from keyhouse.limits import COMBINING_MARKS_MAX, NORMAL_EXPANSION_MAX, NORMALIZED_CHARS_MAX

__all__ = [
    "CONTROLS",
    "CONTROL_CHARACTERS",
    "account_name",
    "has_controls",
    "is_mark",
    "is_visible",
    "normal_form",
    "normalized",
    "pieces",
    "stream_safe",
]

CONTROL_CHARACTERS: Final = r"\x00-\x1f\x7f-\x9f"
"""In a set of a regular expression."""
CONTROLS: Final = CONTROL_CHARACTERS + r"\u2028-\u202e\u2066-\u2069"
"""Control characters, line separators, and controls of the direction of text, in a set of a regular
expression."""

_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0\U00013441\U00013442\U0001d159")
"""Letters and symbols without any ink: fillers, blanks, a note without a head."""
_JOINERS: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x17B4, 0x17B5, 0x16FE4, *range(0x180B, 0x1810)),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Marks without any ink: grapheme joiner, inherent vowels, a filler, variation selectors."""

_control = re.compile(f"[{CONTROLS}]")

Form = Literal["NFD", "NFKC"]

_OTHER_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""Marks of the combining class 0: vowel signs of Tibetan, halfwidth voiced marks of kana."""

_STEP: Final = COMBINING_MARKS_MAX + 1

_EXPANSION_FREE: Final = 64
"""Characters by which any text may grow: a title with `ﷺ` in it is a title."""


def is_mark(character: str) -> bool:
    """Return whether the character is, or decomposes into, combining marks alone."""
    return combining(character) != 0 or character in _OTHER_MARKS


def normalized(form: Form, text: str) -> str:
    """Return the text in a normal form.

    Raises ValueError, whose message completes the sentence "The text …", for text that would take
    long.
    """
    most = NORMAL_EXPANSION_MAX * len(text) + _EXPANSION_FREE
    if len(text) >= _STEP:
        _check_length(text, most)
        if _has_long_run(text):
            raise ValueError(f"has more than {COMBINING_MARKS_MAX} combining marks in a row")
    normal = normalize(form, text)
    if len(normal) > most:
        raise ValueError(_too_long(text, most))
    return normal


def _check_length(text: str, most: int) -> None:
    if len(text) > NORMALIZED_CHARS_MAX:
        raise ValueError(f"has {len(text)} characters; {NORMALIZED_CHARS_MAX} can be normalized")
    if len(text) + 17 * text.count("\ufdfa") > most:
        raise ValueError(_too_long(text, most))


def _too_long(text: str, most: int) -> str:
    return f"has {len(text)} characters, and more than {most} in its normal form"


def stream_safe(text: str) -> str:
    """Return the text without the marks of a run that follow its 30th."""
    if text.isascii() or not _has_long_run(text):
        return text
    kept, run = [], 0
    for character in text:
        run = run + 1 if is_mark(character) else 0
        if run <= COMBINING_MARKS_MAX:
            kept.append(character)
    return "".join(kept)


def normal_form(form: Form, text: str) -> str:
    """Return the normal form of a piece of stream-safe text, whatever it expands to."""
    return normalize(form, text)


def pieces(text: str, chars: int) -> Iterator[str]:
    """Yield a stream-safe text in pieces of at most about this many characters, which can be
    normalized alone: they end after white space if there is any, and never before a mark."""
    start = 0
    while len(text) - start > chars:
        stop = start + chars
        while stop > start + 1 and not text[stop - 1].isspace():
            stop -= 1
        if stop == start + 1:
            stop = start + chars
        while stop < len(text) and is_mark(text[stop]):
            stop += 1
        yield text[start:stop]
        start = stop
    yield text[start:]


def _has_long_run(text: str) -> bool:
    if len(text) < _STEP:
        return False
    sample = text[::_STEP]
    if not any(map(combining, sample)) and _OTHER_MARKS.isdisjoint(sample):
        return False
    end = 0  # of the run that was counted last
    for at in range(0, len(text), _STEP):
        if at < end or not is_mark(text[at]):
            continue
        first, end = at, at + 1
        while first > 0 and is_mark(text[first - 1]):
            first -= 1
        while end < len(text) and is_mark(text[end]) and end - first < _STEP:
            end += 1
        if end - first >= _STEP:
            return True
    return False


def is_visible(name: str) -> bool:
    """Return whether a name has a character that is neither a mark, a separator, unassigned, nor a
    control of whatever kind."""
    return any(category(each)[0] not in "CMZ" and each not in _BLANK for each in name)


def account_name(name: str, chars_max: int) -> str:
    """Return the name of an account in its one form: NFKC, trimmed, single spaces.

    Raises ValueError for an empty or too long one, and for one with a character that has no ink:
    with those, many accounts could look like one. Unassigned characters may get any form later.
    """
    name = name.strip()
    if any(map(_is_inkless, name)):
        raise ValueError("the name of a user has no invisible characters")
    name = " ".join(normalized("NFKC", name).split())
    if not is_visible(name) or len(name) > chars_max or is_mark(name[0]):
        raise ValueError(f"the name of a user has 1 to {chars_max} visible characters")
    return name


def _is_inkless(character: str) -> bool:
    kind = category(character)
    return kind[0] == "C" or kind in ("Zl", "Zp") or character in _BLANK or character in _JOINERS


def has_controls(name: str) -> bool:
    """Return whether a name has a character of `CONTROLS`."""
    return _control.search(name) is not None
