"""Lanes: tasks that work through one queue, a few at once, each of which ends when it finds nothing more to do."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast


class WorkerPool:
    """A lane is gone the moment that it has nothing to do. A callback would be later, and what comes into the queue between
    the two would count on a lane that does not look any more."""

    __slots__ = ("_most", "tasks")

    def __init__(self, most: int) -> None:
        self._most = most
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        return len(self.tasks) >= self._most

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(self._leaving(work)))

    async def _leaving(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self.tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))
