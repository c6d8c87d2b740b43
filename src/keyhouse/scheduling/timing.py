"""Counts and durations of work.

Timings are counted in plain integers and become metrics only when they are scraped: a request pays
for two readings of the clock.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

__all__ = ["SECONDS", "Timing"]

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""Bounds of the histogram buckets: from a read in memory to a commit that waits for a server."""


class Timing:
    """Counts and durations: one series of a histogram."""

    __slots__ = ("failures", "seconds", "steps")

    def __init__(self) -> None:
        self.steps = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.failures = 0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.steps[bisect_left(SECONDS, seconds)] += 1

    @classmethod
    def sum_of(cls, timings: Sequence["Timing"]) -> "Timing":
        total = cls()
        total.steps = [sum(steps) for steps in zip(*(each.steps for each in timings), strict=True)]
        total.seconds = sum(each.seconds for each in timings)
        total.failures = sum(each.failures for each in timings)
        return total

    def rising(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus counts them: each includes all lower ones."""
        return list(
            zip([*map(str, SECONDS), "+Inf"], map(float, accumulate(self.steps)), strict=True)
        )
