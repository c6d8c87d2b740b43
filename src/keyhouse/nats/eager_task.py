"""Coroutines that are begun at once, and become tasks only when they wait a second time.

Most requests are answered without waiting for anything, and nearly all others wait once, for their commit: a task for each
would cost more than its work. So the first step of a coroutine runs here and now. If that was all, there is nothing more to
do; if it waits for a future, it goes on when that is done; and if it then waits again, the rest of it becomes a task.

Until there is a task, the current task is a stand-in for it: `asyncio.timeout` and task groups ask for it, and must not get
hold of whoever called us. `_enter_task` and `_leave_task` are what asyncio has for this (its documentation, "Extending").
"""

import asyncio
from asyncio import CancelledError, Future, Task
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any

Work = Coroutine[Any, Any, None]
Ended = Callable[[BaseException | None], None]


def begin(loop: asyncio.AbstractEventLoop, work: Work, ended: Ended) -> bool:
    """Run `work` until it first waits; whether it has ended. What it raises until then is raised. If it has not, `ended` is
    called when it does, with what it raised."""
    stand_in = StandIn(loop, work, ended)
    caller = asyncio.current_task(loop)
    if caller is not None:
        _leave_task(loop, caller)
    _enter_task(loop, stand_in)  # type: ignore[arg-type]  # any object will do
    try:
        waits_for = work.send(None)
    except StopIteration:
        return True
    finally:
        _leave_task(loop, stand_in)  # type: ignore[arg-type]
        if caller is not None:
            _enter_task(loop, caller)
    stand_in.wait(waits_for)
    return False


class StandIn:
    """Answers for a task that there is not yet: what a task answers to whoever may cancel it."""

    __slots__ = (
        "__weakref__",
        "_cancelling",
        "_ended",
        "_loop",
        "_must_cancel",
        "_task",
        "_waits_for",
        "_work",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work, ended: Ended) -> None:
        self._loop = loop
        self._work = work
        self._ended = ended
        self._waits_for: Future[Any] | None = None
        self._task: Task[None] | None = None
        self._cancelling = 0
        self._must_cancel = False

    def wait(self, waits_for: Any) -> None:
        """Go on when the future is done. What is none (`sleep(0)` waits for nothing) is left to a task."""
        if getattr(waits_for, "_asyncio_future_blocking", False):
            waits_for._asyncio_future_blocking = False  # as a task says that it has taken notice
            self._waits_for = waits_for
            waits_for.add_done_callback(self._go_on)
            if self._must_cancel and waits_for.cancel():
                self._must_cancel = (
                    False  # whoever works on what is waited for is told, and then the coroutine is
                )
        elif self._must_cancel:
            self._loop.call_soon(self._go_on, None)
        else:
            self._become_task(waits_for)

    def _go_on(self, _: "Future[Any] | None") -> None:
        """The future itself hands its result, or what it failed with, to the coroutine that awaits it."""
        self._waits_for = None
        cancelled, self._must_cancel = self._must_cancel, False
        _enter_task(self._loop, self)  # type: ignore[arg-type]
        try:
            waits_for = self._work.throw(CancelledError()) if cancelled else self._work.send(None)
        except StopIteration:
            failure: BaseException | None = None
        except (Exception, CancelledError) as error:
            failure = error
        else:
            if self._must_cancel:
                self.wait(waits_for)
            else:
                self._become_task(waits_for)
            return
        finally:
            _leave_task(self._loop, self)  # type: ignore[arg-type]
        self._ended(failure)

    def _become_task(self, waits_for: Any) -> None:
        self._task = self._loop.create_task(_Rest(self._work, waits_for))
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "Task[None]") -> None:
        self._ended(CancelledError() if task.cancelled() else task.exception())

    def cancel(self, msg: object = None) -> bool:
        if self._task is not None:
            return self._task.cancel(msg)
        self._cancelling += 1
        if self._waits_for is None or not self._waits_for.cancel(msg):
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        return self._cancelling + (0 if self._task is None else self._task.cancelling())

    def uncancel(self) -> int:
        if self._cancelling:
            self._cancelling -= 1
        elif self._task is not None:
            self._task.uncancel()
        return self.cancelling()


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine from where it waits. A task that is cancelled before its first step would throw into a coroutine that has
    not begun, and the work never hear of it: here it does."""

    __slots__ = ("_begun", "_waits_for", "_work")

    def __init__(self, work: Work, waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for
        self._begun = False

    def send(self, value: Any) -> Any:
        if self._begun:
            return self._work.send(value)
        self._begun = True
        return self._waits_for

    def throw(self, *thrown: Any) -> Any:
        if not self._begun:
            self._begun = True
            if isinstance(self._waits_for, Future):
                self._waits_for.cancel()  # as a task does with what it waits for
        return self._work.throw(*thrown)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()
