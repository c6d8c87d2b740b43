"""Spans of time: sorted pairs of seconds that do not overlap, of which a limited number is kept.

A time that is in a span stays in one: where there are too many, the two oldest become one, together
with the time between them. So what a span stands for is never counted a second time, whatever has
been forgotten.
"""

from collections.abc import Sequence
from typing import Final

__all__ = ["SPANS_MAX", "TimeSpan", "is_near", "joined", "uncovered"]

SPANS_MAX: Final = 16

TimeSpan = tuple[int, int]


def uncovered(spans: Sequence[TimeSpan], start: int, end: int) -> int:
    """Return the seconds from `start` to `end` that are in no span."""
    if not spans or start >= spans[-1][1]:
        return max(0, end - start)
    covered = sum(max(0, min(last, end) - max(first, start)) for first, last in spans)
    return max(0, end - start) - covered


def is_near(spans: Sequence[TimeSpan], at: int, apart: int) -> bool:
    """Return whether a time is less than `apart` seconds before, in or after a span."""
    return any(first - apart < at < last + apart for first, last in spans)


def joined(
    spans: Sequence[TimeSpan], start: int, end: int, *, apart: int = 1, spans_max: int = SPANS_MAX
) -> list[TimeSpan]:
    """Return the spans with one more. Spans that are less than `apart` seconds away become one."""
    later = len(spans)
    while later and spans[later - 1][0] > start - apart:
        later -= 1  # none, if the new one is the newest
    merged = list(spans[:later])
    for first, last in sorted([(start, end), *spans[later:]]):
        if merged and first - merged[-1][1] < apart:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    while len(merged) > spans_max:
        merged[:2] = [(merged[0][0], merged[1][1])]
    return merged
