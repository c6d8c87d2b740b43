"""A bounded set of tasks that drain one queue. Each task returns when the queue is empty."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast


class WorkerPool:
    """A worker leaves the pool in the same step in which it returns.

    A done callback would run one loop turn later, and a write queued in between would count on a
    worker that no longer looks at the queue.
    """

    __slots__ = ("tasks", "workers_max")

    def __init__(self, workers_max: int) -> None:
        self.workers_max = workers_max
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        return len(self.tasks) >= self.workers_max

    def start(self, worker: Callable[[], Awaitable[None]]) -> None:
        self.tasks.add(asyncio.ensure_future(self._run(worker)))

    async def _run(self, worker: Callable[[], Awaitable[None]]) -> None:
        try:
            await worker()
        finally:
            self.tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))
