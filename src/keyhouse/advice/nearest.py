"""Names that were probably meant, for errors about names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

__all__ = ["NAME_CHARS_MAX", "is_misspelled", "nearest"]

NAME_CHARS_MAX = 64
"""Characters of a name that are compared; the name may come from a request."""
_SHORT_CHARS = 3
_LIKE, _LIKE_SHORT = 0.6, 0.75
"""Similarity of names; of short ones more, so that `set` is not suggested for `get`."""
_LETTERS_MIN = 3
"""Letters of the longer name, from which a difference of one letter is a misspelling."""


def nearest(name: object, known: Iterable[str]) -> dict[str, Any]:
    """Return the fields of the error: the `nearest` known name, if one is like this one whatever
    its case, and all that are `known`."""
    names = sorted(known) if isinstance(known, set | frozenset) else list(known)
    folded = {each.casefold(): each for each in names}
    text = str(name)[:NAME_CHARS_MAX].casefold()
    like = get_close_matches(text, folded, 1, _LIKE if len(text) > _SHORT_CHARS else _LIKE_SHORT)
    return {**({"nearest": folded[like[0]]} if like else {}), "known": names}


def is_misspelled(name: str, known: str) -> bool:
    """Return whether one letter of a name is missing, added, other or swapped with its
    neighbour."""
    short, long = sorted((name, known), key=len)
    if name == known or len(long) < _LETTERS_MIN or len(long) - len(short) > 1:
        return False
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), None)
    if at is None:
        return long[-1].isalpha()
    if len(short) < len(long):
        return long[at].isalpha() and short[at:] == long[at + 1 :]
    if short[at + 1 :] == long[at + 1 :]:
        return short[at].isalpha() and long[at].isalpha()
    return short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
