"""Log lines of one cause, one a second: while an engine is away, every request fails alike."""

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

CAUSES_MAX: Final = 256
"""Causes that are remembered; beyond it, the oldest one is forgotten."""

_SECONDS: Final = 1.0


class RepeatedLines:
    """Says which lines to log, and how many of the same cause were left out before."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: dict[Hashable, tuple[float, int]] = {}

    def fields(self, cause: Hashable) -> dict[str, int] | None:
        """Return fields for a line of this cause: `repeated`, if lines were left out. None: leave
        this one out."""
        now = self._clock()
        last, left_out = self._last.get(cause, (float("-inf"), 0))
        if now - last < _SECONDS:
            self._last[cause] = last, left_out + 1
            return None
        self._last[cause] = now, 0
        if len(self._last) > CAUSES_MAX:
            del self._last[next(iter(self._last))]
        return {"repeated": left_out} if left_out else {}
