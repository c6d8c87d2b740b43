"""Normal form and check digit of ISBNs. Pure."""

import re
from collections.abc import Sequence
from operator import mul

from keyhouse.errors import RecordError

__all__ = [
    "isbn10",
    "isbn13",
]

_SEPARATORS = re.compile(r"[\s-]+")
_ISBN10 = re.compile(r"[0-9]{9}[0-9X]", re.ASCII)
_ISBN13 = re.compile(r"[0-9]{13}", re.ASCII)
_WEIGHTS10 = range(10, 0, -1)
_WEIGHTS13 = (1, 3) * 6 + (1,)
_VALUES = {digit: value for value, digit in enumerate("0123456789X")}


def isbn10(text: str) -> str:
    """Return an ISBN-10 without hyphens and spaces, its X in upper case; RecordError if it is
    invalid."""
    plain = _SEPARATORS.sub("", text).upper()
    if not _ISBN10.fullmatch(plain):
        raise RecordError(
            "An ISBN-10 has nine digits and a check digit, which may be X.", isbn10=text
        )
    if _weighted(_WEIGHTS10, plain) % 11:
        raise RecordError("The check digit of the ISBN-10 is wrong.", isbn10=text)
    return plain


def isbn13(text: str) -> str:
    """Return an ISBN-13 without hyphens and spaces; RecordError if it is invalid."""
    plain = _SEPARATORS.sub("", text)
    if not _ISBN13.fullmatch(plain):
        raise RecordError("An ISBN-13 has thirteen digits.", isbn13=text)
    if _weighted(_WEIGHTS13, plain) % 10:
        raise RecordError("The check digit of the ISBN-13 is wrong.", isbn13=text)
    return plain


def _weighted(weights: Sequence[int], digits: str) -> int:
    return sum(map(mul, weights, map(_VALUES.__getitem__, digits)))
