"""The sweeper: deletes expired rows in the background, and logs and measures each run."""

import asyncio
from time import perf_counter
from typing import Final

from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError
from keyhouse.limits import SWEEP_ROWS_MAX
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.store import sweep

__all__ = ["Sweeper"]

BACKLOG_SECONDS: Final = 1.0
"""Pause after a sweep that used up its budget."""


class Sweeper:
    """One run deletes about `SWEEP_ROWS_MAX` rows at most; a backlog is worked off by runs a second
    apart."""

    def __init__(
        self,
        engine: Engine,
        seconds: float,
        metrics: OperationMetrics,
        log: OperationLog,
        *,
        rows_max: int = SWEEP_ROWS_MAX,
    ) -> None:
        self._engine = engine
        self._seconds = seconds
        self._metrics = metrics
        self._log = log
        self._rows_max = rows_max

    async def run(self) -> None:
        """Sweep at every interval until cancelled; return at once if the interval is 0."""
        pause = self._seconds
        while pause:
            await asyncio.sleep(pause)
            has_backlog = await self.sweep() >= self._rows_max
            pause = min(BACKLOG_SECONDS, self._seconds) if has_backlog else self._seconds

    async def sweep(self) -> int:
        """Sweep once and return the number of rows deleted. A failure is logged; the next run may
        succeed."""
        start = perf_counter()
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
