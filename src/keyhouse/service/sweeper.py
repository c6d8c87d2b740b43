"""The sweeper: deletes expired rows in the background, and logs and measures each run."""

from time import perf_counter
from typing import Final

from keyhouse.clock import Clock, monotonic
from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError, UnavailableError
from keyhouse.service.limits import SWEEP_ROWS_MAX
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask
from keyhouse.store import sweep

__all__ = ["Sweeper"]

BACKLOG_SECONDS: Final = 1.0
"""Pause after a sweep that used up its budget."""

LEAP_MILLISECONDS: Final = 60_000
"""A clock that gained more than this on the monotonic one since the last sweep was set forward."""

HOLD_MILLISECONDS: Final = 3_600_000
"""Time without a sweep after the clock was set forward: to correct it, if it is wrong."""


class Sweeper:
    """One run deletes about `SWEEP_ROWS_MAX` rows at most; a backlog is worked off by runs a second
    apart.

    A sweep deletes for good what the clock calls expired. So after the clock was set forward while
    the process runs, nothing is swept for an hour, or until it is set back.
    """

    def __init__(
        self,
        engine: Engine,
        seconds: float,
        metrics: OperationMetrics,
        log: OperationLog,
        *,
        rows_max: int = SWEEP_ROWS_MAX,
        is_shared: bool = True,
        timer: Clock | None = None,
    ) -> None:
        self._engine = engine
        self._seconds = seconds
        self._metrics = metrics
        self._log = log
        self._rows_max = rows_max
        self._is_shared = is_shared
        self._timer = timer or monotonic(engine.clock)
        self._offset = engine.clock.now() - self._timer.now()
        self._hold_until = self._timer.now()

    async def run(self) -> None:
        """Sweep at every interval until cancelled, in one of the processes of the engine; return at
        once if the interval is 0."""
        if self._seconds:
            task = SharedTask(
                self._engine,
                "sweep",
                self._seconds,
                self._log,
                delay=self._seconds,
                is_shared=self._is_shared,
            )
            await task.run(self._turn)

    async def _turn(self) -> float:
        """Sweep once; return the pause until the next sweep."""
        has_backlog = await self.sweep() >= self._rows_max
        return min(BACKLOG_SECONDS, self._seconds) if has_backlog else self._seconds

    async def sweep(self) -> int:
        """Sweep once and return the number of rows deleted. A failure is logged; the next run may
        succeed."""
        start = perf_counter()
        if self._clock_was_set_forward():
            return 0
        try:
            rows = await sweep(self._engine, rows_max=self._rows_max)
        except KeyhouseError as error:
            self._log.task_failed("cleanup", error)
            return 0
        seconds = perf_counter() - start
        self._metrics.swept += rows
        self._metrics.sweeps.add(seconds)
        self._log.swept(rows, seconds)
        return rows

    def _clock_was_set_forward(self) -> bool:
        """Compare the clock with the monotonic one; log it once if it was set forward."""
        now = self._timer.now()
        offset = self._engine.clock.now() - now
        gained, self._offset = offset - self._offset, offset
        if gained > LEAP_MILLISECONDS:
            self._hold_until = now + HOLD_MILLISECONDS
            error = UnavailableError(
                "The clock was set forward: no expired row is deleted for an hour."
                " Check the clock.",
                seconds=gained // 1_000,
            )
            self._log.task_failed("cleanup", error)
        elif gained < -LEAP_MILLISECONDS:
            self._hold_until = now
        return now < self._hold_until
