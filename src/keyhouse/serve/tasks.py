"""What runs beside the requests: sweeps and jobs of the systems. One that fails is said, and begun again after a pause."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import structlog

from keyhouse.errors import KeyhouseError
from keyhouse.metrics import Metrics
from keyhouse.service.spec import ServiceSpec

PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""The pause before a task is begun again: at first, then twice as long each time, up to this."""

_log = structlog.get_logger("keyhouse.serve")


class Tasks:
    """Those of all parts, for as long as the block runs; at its end they are cancelled, and waited for."""

    def __init__(
        self,
        parts: Sequence[ServiceSpec],
        metrics: Metrics,
        *,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._parts = parts
        self._metrics = metrics
        self._pause_seconds = pause_seconds
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._running = [
            asyncio.create_task(self._keep_up(part.name, task))
            for part in self._parts
            for task in part.tasks
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _keep_up(self, system: str, task: Callable[[], Awaitable[None]]) -> None:
        """Until it ends by itself, which says that it is done."""
        pause = self._pause_seconds
        while True:
            try:
                return await task()
            except KeyhouseError as error:
                _log.error("a task failed", system=system, error=str(error), again_in_seconds=pause)
            except Exception:
                _log.exception("a task failed", system=system, again_in_seconds=pause)
            self._metrics.task_failures.labels(system).inc()
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
