"""Counter rows, where the store looks at one itself instead of leaving the sum to the engine."""

import re

from keyhouse.errors import CounterError
from keyhouse.limits import COUNTER_MAX

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")


def number_of(key: str, value: bytes) -> int:
    """What a counter's row says; CounterError when it is no counter."""
    if _INTEGER.fullmatch(value) is None:
        raise CounterError("The row is not a counter.", key=key)
    return int(value)


def sum_of(key: str, value: bytes | None, by: int) -> bytes:
    """The row after adding, as an engine would make it."""
    total = by if value is None else number_of(key, value) + by
    if abs(total) > COUNTER_MAX:
        raise CounterError("The counter would pass its bounds.", key=key, limit=COUNTER_MAX)
    return b"%d" % total
