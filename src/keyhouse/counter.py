"""Counter arithmetic, shared by the store and by engines that add in Python.

A counter is a row whose value is a JSON integer without white space, between `-COUNTER_MAX` and
`COUNTER_MAX`.
"""

import re

from keyhouse.errors import CounterError
from keyhouse.limits import COUNTER_MAX

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_DIGITS_MAX = len(str(COUNTER_MAX)) + 1
"""Including the sign. A longer text is out of range, and slow to parse."""


def number_of(key: str, value: bytes) -> int:
    """Return a counter's number; raises CounterError if the value is not one."""
    if _INTEGER.fullmatch(value) is None:
        raise CounterError("The row is not a counter: its value is not a JSON integer.", key=key)
    if len(value) > _DIGITS_MAX:
        raise CounterError("The counter is out of range.", key=key, limit=COUNTER_MAX)
    return int(value)


def sum_of(key: str, value: bytes | None, by: int) -> bytes:
    """Return the counter's value after adding `by`; an absent one starts at 0."""
    total = by if value is None else number_of(key, value) + by
    if not -COUNTER_MAX <= total <= COUNTER_MAX:
        raise CounterError("The counter would overflow.", key=key, by=by, limit=COUNTER_MAX)
    return b"%d" % total
