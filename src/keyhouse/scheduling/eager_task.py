"""Eager tasks: run a coroutine at once, and schedule it only if it has to wait.

Theory of operation. Most requests are answered without waiting, and nearly all others wait once,
for their commit. A task per request costs more than such work: it is created, scheduled, and
stepped in a later turn of the event loop. `start` runs the first step of the coroutine in the
caller's own turn. Python 3.12 has this as `asyncio.Task(eager_start=True)`, which is used where it
exists.

On Python 3.11 an `EagerTask` takes the place of the task until the coroutine waits a second time:

| state | entered when | the next event |
|---|---|---|
| running | `start` steps the coroutine | it returns or raises: done; it awaits: waiting or task |
| waiting | it awaits a future for the first time | the future is done: resumed |
| resumed | the event loop steps it again | it returns or raises: done; it awaits again: task |
| task | it awaits a second time, or awaits no future (`sleep(0)`) | the real task ends: done |
| done | the coroutine has ended | `start` returned True, or the callback `done` was called |

`cancel` acts by state: waiting cancels the future; task cancels the real task; running and resumed
set `_must_cancel`, which cancels the next future that is awaited, or throws CancelledError into the
coroutine at its next step, as a real task does.

Like a task, it runs in a copy of the context in which it was started. While a coroutine is stepped,
the EagerTask is the current task: `asyncio.timeout` and task groups ask for it, and must not get
the caller's. `_enter_task` and `_leave_task` are asyncio's functions for other implementations of
tasks (its documentation, "Extending").

`Started` is for one step inside a coroutine: what returns at once needs no timer.
"""

import asyncio
import sys
from asyncio import CancelledError, Future, Task
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any

__all__ = ["Started", "start"]

Work = Coroutine[Any, Any, None]
Done = Callable[[BaseException | None], None]


if sys.version_info >= (3, 12):
    _running: set[Task[None]] = set()  # the event loop has weak references only

    def start(loop: asyncio.AbstractEventLoop, work: Work, done: Done) -> bool:
        """Run `work` until it first waits, and return whether it has ended.

        Exceptions up to there are raised. Otherwise `done` is called when it ends, with the
        exception or None.
        """
        task = Task(work, loop=loop, eager_start=True)
        if task.done():
            task.result()
            return True

        def ended(task: Task[None]) -> None:
            _running.discard(task)
            done(CancelledError() if task.cancelled() else task.exception())

        _running.add(task)
        task.add_done_callback(ended)
        return False

else:

    def start(loop: asyncio.AbstractEventLoop, work: Work, done: Done) -> bool:
        """Run `work` until it first waits, and return whether it has ended.

        Exceptions up to there are raised. Otherwise `done` is called when it ends, with the
        exception or None.
        """
        eager = EagerTask(loop, work, done)
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, eager)  # type: ignore[arg-type]  # any object will do
        try:
            awaited = eager.context.run(work.send, None)
        except StopIteration:
            return True
        finally:
            _leave_task(loop, eager)  # type: ignore[arg-type]
            if caller is not None:
                _enter_task(loop, caller)
        eager.wait(awaited)
        return False


class EagerTask:
    """Has the methods of a task that are called on the current task."""

    __slots__ = (
        "__weakref__",
        "_awaited",
        "_cancelling",
        "_done",
        "_loop",
        "_must_cancel",
        "_task",
        "_work",
        "context",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work, done: Done) -> None:
        self.context = copy_context()
        self._loop = loop
        self._work = work
        self._done = done
        self._awaited: Future[Any] | None = None
        self._task: Task[None] | None = None
        self._cancelling = 0
        self._must_cancel = False

    def wait(self, awaited: Any) -> None:
        """Enter the state waiting, or task if `awaited` is not a future (`sleep(0)` awaits
        None)."""
        if getattr(awaited, "_asyncio_future_blocking", False):
            awaited._asyncio_future_blocking = False  # the acknowledgement that a task gives
            self._awaited = awaited
            awaited.add_done_callback(self._resume, context=self.context)
            if self._must_cancel and awaited.cancel():
                self._must_cancel = False  # the future raises CancelledError in the coroutine
        elif self._must_cancel:
            self._loop.call_soon(self._resume, None, context=self.context)
        else:
            self._become_task(awaited)

    def _resume(self, _: "Future[Any] | None") -> None:
        """Step the coroutine; the future passes its result or exception to it."""
        self._awaited = None
        cancelled, self._must_cancel = self._must_cancel, False
        _enter_task(self._loop, self)  # type: ignore[arg-type]
        try:
            awaited = self._work.throw(CancelledError()) if cancelled else self._work.send(None)
        except StopIteration:
            failure: BaseException | None = None
        except (Exception, CancelledError) as error:
            failure = error
        else:
            if self._must_cancel:
                self.wait(awaited)
            else:
                self._become_task(awaited)
            return
        finally:
            _leave_task(self._loop, self)  # type: ignore[arg-type]
        self._done(failure)

    def _become_task(self, awaited: Any) -> None:
        remainder = _Remainder(self._work, awaited)
        self._task = self._loop.create_task(remainder, context=self.context)
        self._task.add_done_callback(self._task_done)

    def _task_done(self, task: "Task[None]") -> None:
        self._done(CancelledError() if task.cancelled() else task.exception())

    def cancel(self, msg: object = None) -> bool:
        if self._task is not None:
            return self._task.cancel(msg)
        self._cancelling += 1
        if self._awaited is None or not self._awaited.cancel(msg):
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


class _Remainder(Coroutine[Any, Any, None]):
    """A coroutine from its second wait on, as the coroutine of a task.

    A task that is cancelled before its first step throws into a coroutine that has not started,
    which the work would never see: here the work receives it.
    """

    __slots__ = ("_awaited", "_started", "_work")

    def __init__(self, work: Work, awaited: Any) -> None:
        self._work = work
        self._awaited = awaited
        self._started = False

    def send(self, value: Any) -> Any:
        if self._started:
            return self._work.send(value)
        self._started = True
        return self._awaited

    def throw(self, *thrown: Any) -> Any:
        if not self._started:
            self._started = True
            if isinstance(self._awaited, Future):
                self._awaited.cancel()  # as a task does with the future that it awaits
        return self._work.throw(*thrown)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


class Started:
    """An awaitable that was stepped once, by the task that awaits it next: `is_done`, and then has
    its `result`, or is to be awaited."""

    __slots__ = ("_awaited", "_steps", "is_done", "result")

    def __init__(self, work: Awaitable[Any]) -> None:
        self._steps: Any = work.__await__()
        self.is_done = False
        self.result: Any = None
        try:
            self._awaited = next(self._steps)
        except StopIteration as ended:
            self.is_done = True
            self.result = ended.value

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._awaited
        while True:
            try:
                try:
                    yield awaited
                except BaseException as error:
                    awaited = self._steps.throw(error)
                else:
                    awaited = next(self._steps)
            except StopIteration as ended:
                return ended.value
