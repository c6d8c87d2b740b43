"""The pace of background work: step sizes and pauses by a budget of time.

A sweep works in steps, each a transaction that other writes share or wait for. Its rows differ in
cost (large values, pages that are not cached, a slow disk), so a step is sized by the time that the
last one took, not by a fixed number of rows:

| other writes        | time of a step                     | then                                 |
|---------------------|------------------------------------|--------------------------------------|
| none                | up to IDLE_SECONDS                 | the next step at once, up to 4 times |
|                     |                                    | as large                             |
| since the last step | up to the engine's `busy_seconds`, | a pause as long as the step took, in |
|                     | or a share of what writes take     | which writes do not meet a step      |

A step that exceeds its budget is followed by a smaller one: of a quarter at least while nobody
writes, and of half the usual size at least, so that the work always ends. While others write, a
step may have twice as many rows as they wrote since the last one, if its time allows: then the
sweep keeps up with them.
"""

from typing import Final

IDLE_SECONDS: Final = 0.010
"""Time of a step while nobody else writes: the next writer waits for one such step."""

BUSY_SHARE: Final = 1 / 8
"""Share of the time from a step's submission to its commit that its own work may take."""

PAUSE_SECONDS_MAX: Final = 0.1

_GROWTH: Final = 4


class Pace:
    """`rows` is the size of the next step.

    `rows_busy` is the usual size while others write, and half of it the smallest size.
    """

    def __init__(self, *, rows_max: int, rows_busy: int, busy_seconds: float) -> None:
        self.rows = rows_busy
        self._rows_max = rows_max
        self._rows_busy = rows_busy
        self._rows_min = max(1, rows_busy // 2)
        self._busy_seconds = busy_seconds

    def next(self, work: float, elapsed: float, others: int) -> float:
        """Size the next step; return the pause before it, in seconds.

        `work` is the time of the last step's own work, `elapsed` that until it was committed, and
        `others` the number of other writes since the step before it.
        """
        if others:
            budget = max(self._busy_seconds, elapsed * BUSY_SHARE)
            most = min(self._rows_max, max(self._rows_busy, 2 * others))
        else:
            budget, most = IDLE_SECONDS, self._rows_max
        if work > budget:
            least = 0.0 if others else 1 / _GROWTH  # others have noticed it: not a second time
            self.rows = int(self.rows * max(least, budget / work))
        elif others:
            self.rows += self.rows // _GROWTH + 1
        else:
            self.rows *= _GROWTH
        self.rows = max(self._rows_min, min(self.rows, most))
        return min(elapsed, PAUSE_SECONDS_MAX) if others else 0
