"""Check the JSON of a request before it is parsed: what a document may be (`schema/json_guard.py`),
and also its number of values, and its numbers that are slow to parse.

Text of the store is not checked for these two: it must stay readable.
"""

from collections.abc import Iterator
from typing import Final

from keyhouse.errors import LimitError
from keyhouse.limits import INTEGER_DIGITS_MAX
from keyhouse.requests.limits import REQUEST_VALUES_MAX, SLOW_NUMBERS_MAX
from keyhouse.schema.document import check_text
from keyhouse.schema.json_guard import check_digits, depth_checks, outside

_NO_VALUE_STARTS: Final = bytes(set(range(256)) - set(b'[{,"'))
_NO_NUMBERS: Final = bytes(set(range(256)) - set(b'0123456789eE,"'))
_AS_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")

_LONG_EXPONENT: Final = b"0e000"
_LONG_INTEGER: Final = b"0" * 1_000
"""A number with an exponent of three digits, and 1,000 digits, where every digit is a zero and
signs and points are dropped."""

_LONG_INTEGER_COST: Final = 10
SLOW_TEXT_BYTES: Final = SLOW_NUMBERS_MAX * len("1e-320,")
"""A shorter text has too few numbers to be slow."""


def check_request(text: bytes, *, envelope_levels: int = 0) -> None:
    """Raise DocumentError as `check_text` does, and LimitError if the text has too many values, or
    numbers that are slow to parse."""
    check_text(text, envelope_levels=envelope_levels)
    if len(text) > INTEGER_DIGITS_MAX:
        if len(text) > REQUEST_VALUES_MAX:  # a shorter text has fewer values
            for _ in value_checks(text, REQUEST_VALUES_MAX):
                pass
        for _ in number_checks(text):
            pass


def request_checks(text: bytes, *, values_max: int) -> Iterator[None]:
    """Check a large request in short steps, so that other tasks can run between them.

    Also raises LimitError if it has more than `values_max` values.
    """
    yield from depth_checks(text)
    yield from value_checks(text, values_max)
    yield from number_checks(text)
    check_digits(text)


def value_checks(text: bytes, values_max: int) -> Iterator[None]:
    """Raise LimitError if the text has too many values, checking in steps too.

    A value takes many times the memory of its text. Each one starts after a bracket or a comma, so
    those are counted.
    """
    if sum(map(text.count, (b"[", b"{", b","))) <= values_max:
        return
    values = 0
    for starts in outside(text, _NO_VALUE_STARTS):
        values += len(starts)
        if values > values_max:
            raise LimitError(
                "The document has too many values: send several documents.", limit=values_max
            )
        yield


def number_checks(text: bytes) -> Iterator[None]:
    """Raise LimitError if parsing the numbers of the text takes too long, checking in steps too.

    Most numbers are parsed in nanoseconds. One near the smallest or largest float takes
    microseconds, and an integer the square of its length.
    """
    if len(text) < SLOW_TEXT_BYTES:
        return
    slow = 0
    for numbers in outside(text, _NO_NUMBERS, _AS_ZEROS):
        slow += numbers.count(_LONG_EXPONENT)
        slow += numbers.count(_LONG_INTEGER) * _LONG_INTEGER_COST
        if slow > SLOW_NUMBERS_MAX:
            raise LimitError(
                "The document has too many numbers with an exponent of three digits, or with"
                " thousands of digits: send several documents.",
                limit=SLOW_NUMBERS_MAX,
            )
        yield
