"""Coroutines that are begun at once, and become tasks only when they wait.

Most requests are answered without waiting for anything: a task for each would cost more than its work. So the first step of
a coroutine runs here and now. If that was all, there is nothing more to do; if it waits, the rest of it becomes a task.

While the first step runs, the current task is a stand-in for the task that there may be: `asyncio.timeout` and task groups
ask for it, and must not get hold of whoever called us. `_enter_task` and `_leave_task` are what asyncio has for this
(its documentation, "Extending").
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from typing import Any


def begin(
    loop: asyncio.AbstractEventLoop, caller: "asyncio.Task[Any]", work: Coroutine[Any, Any, None]
) -> "asyncio.Task[None] | None":
    """Run `work` until it first waits: its task then, or `None` when it has ended. What it raises before that is raised.
    `caller` is the current task."""
    stand_in = _StandIn()
    _leave_task(loop, caller)
    _enter_task(loop, stand_in)  # type: ignore[arg-type]  # any object will do
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    finally:
        _leave_task(loop, stand_in)  # type: ignore[arg-type]
        _enter_task(loop, caller)
    task = loop.create_task(_go_on(work, waits_for))
    stand_in.task = task
    return task


class _StandIn:
    """Answers for a task that there is not yet."""

    __slots__ = ("__weakref__", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def cancelling(self) -> int:
        return 0 if self.task is None else self.task.cancelling()

    def cancel(self, msg: object = None) -> bool:
        return self.task is not None and self.task.cancel(msg)

    def uncancel(self) -> int:
        return 0 if self.task is None else self.task.uncancel()


class _Rest:
    """A coroutine from where it waits."""

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        while True:
            thrown: BaseException | None = None
            try:
                given = yield waits_for
            except BaseException as error:
                thrown = error
            try:
                waits_for = self._work.send(given) if thrown is None else self._work.throw(thrown)
            except StopIteration:
                return


async def _go_on(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _Rest(work, waits_for)
