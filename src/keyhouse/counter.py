"""What a counter is, in one place: whoever computes a sum in Python, an engine or the store, agrees to the byte.

A counter is a row whose value is a JSON integer without white space, at most `COUNTER_MAX` from 0 either way.
"""

import re

from keyhouse.errors import CounterError
from keyhouse.limits import COUNTER_MAX

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_DIGITS_MAX = (
    len(str(COUNTER_MAX)) + 1
)  # the sign; a longer text is out of bounds, and slow to parse


def number_of(key: str, value: bytes) -> int:
    """What a counter's row says; CounterError when it is no counter."""
    if _INTEGER.fullmatch(value) is None:
        raise CounterError("The row is not a counter: its value is not a JSON integer.", key=key)
    if len(value) > _DIGITS_MAX:
        raise CounterError("The counter is out of its bounds.", key=key, limit=COUNTER_MAX)
    return int(value)


def sum_of(key: str, value: bytes | None, by: int) -> bytes:
    """The counter's value after adding `by`; an absent one counts from 0."""
    total = by if value is None else number_of(key, value) + by
    if not -COUNTER_MAX <= total <= COUNTER_MAX:
        raise CounterError("The counter would pass its bounds.", key=key, by=by, limit=COUNTER_MAX)
    return b"%d" % total
