"""Names that were probably meant, for errors about names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["is_misspelled", "nearest"]

_LETTERS_MIN = 3
"""Letters of the longer name, from which a difference of one letter is a misspelling."""


def nearest(name: str, known: Iterable[str]) -> dict[str, object]:
    """Return the known name that is most like this one, as a field of an error; else nothing."""
    found = get_close_matches(name, list(known), 1)
    return {"nearest": found[0]} if found else {}


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
