"""Group commit, for the engines that write to a disk of their own: whatever comes in while one group is being made durable
becomes the next group.

A group is prepared on the event loop's thread, where it touches memory and the system's cache only; what waits for the disk
runs on the writer's own thread. A group is bounded, so that the loop is never held long. A job that is too large for it
runs on the thread as a whole, and so does a group that its engine is not ready to take, because it has to wait.

Callbacks drive it, not a task: there is nothing that a cancelled caller, or a loop that shuts down, could stop half way.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from keyhouse.engines.worker_thread import WorkerThread
from keyhouse.errors import EngineError, KeyhouseError, UnknownOutcomeError

GROUP_JOBS_MAX: Final = 128
"""Jobs in one group."""

GROUP_ROWS_MAX: Final = 512
"""Rows looked at or written in one group that the event loop prepares: about 2 ms."""

GROUP_BYTES_MAX: Final = 1_024 * 1_024
"""Bytes of values in one group that the event loop prepares."""

Answer = TypeVar("Answer")


class Wait(Exception):
    """The engine is not ready to take the group: it is prepared on the thread, which can wait."""


class PendingCommit(Generic[Answer]):
    """One caller's work for one group, and the caller's wait for its answer.

    `alone`: too large for the event loop, so it runs on the writer's thread, in a group of its own. `REFUSALS` are the job's
    own, and leave nothing behind; `POISON` breaks off in the midst of its writes: then the group must be done again
    without it. What is neither is the group's, and is raised.
    """

    REFUSALS: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    POISON: ClassVar[tuple[type[Exception], ...]] = ()

    __slots__ = ("_answer", "_refusal", "_work", "alone", "bytes", "future", "poisoned", "rows")

    def __init__(
        self, work: Callable[[Any], Answer], *, rows: int = 0, bytes: int = 0, alone: bool = False
    ) -> None:
        self._work = work
        self._refusal: Exception | None = None
        self.rows = rows
        self.bytes = bytes
        self.alone = alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX
        self.future: asyncio.Future[Answer]
        """Made when it is submitted."""
        self.poisoned = False

    def run(self, transaction: object) -> None:
        """Keep the answer, or the refusal, until the group is on disk."""
        self._refusal = None
        try:
            self._answer = self._work(transaction)
        except self.POISON as fault:
            self._refusal = fault
            self.poisoned = True
        except self.REFUSALS as refusal:
            self._refusal = refusal

    def settle(self, failure: KeyhouseError | None) -> None:
        """Tell the caller, unless it has gone: its poison, or the group's failure, which may have made a refusal vain, or
        its own refusal, or the answer."""
        refusal, self._refusal = self._refusal, None  # whose traceback leads back here
        if self.future.done():
            return
        if failure is not None and not self.poisoned:
            self.future.set_exception(failure.copy())
        elif refusal is not None:
            self.future.set_exception(refusal)
        else:
            self.future.set_result(self._answer)


Group = list[PendingCommit[Any]]


def _known(error: Exception) -> KeyhouseError:
    """What nobody foresaw is told as well: a caller that is not answered waits for ever, and so do all behind it."""
    if isinstance(error, KeyhouseError):
        return error
    return EngineError(
        "The engine failed in a way that it does not know.", detail=repr(error)
    ).caused_by(error)


def _unknown(error: BaseException) -> KeyhouseError:
    """On the thread, nobody can tell how far it came."""
    sentence = "The engine failed in a way that it does not know; repeat with the same batch id."
    return UnknownOutcomeError(sentence, detail=repr(error)).caused_by(error)


def _told(future: Future[None], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


class CommitQueue(ABC):
    """The queue in front of what writes. An engine says how a group is prepared, made durable and told."""

    def __init__(self, name: str) -> None:
        self._queue: deque[PendingCommit[Any]] = deque()
        self._thread = WorkerThread(f"keyhouse-{name}")
        self._loop: asyncio.AbstractEventLoop
        self._working = False
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._closing: Future[None] | None = None

    # What an engine says

    @abstractmethod
    def _closed_error(self) -> KeyhouseError: ...

    def _revive(self) -> None:  # noqa: B027  # not every engine has something to do here
        """Mend what an earlier group has left broken, before the next; a KeyhouseError is told to that one."""

    @abstractmethod
    def _prepare(self, group: Group) -> bool:
        """Do the group's work up to, and without, what waits for the disk; whether there is anything to make durable. Wait
        when it has to wait; any other error is the group's, by `_translated`."""
        ...

    @abstractmethod
    def _whole(self, group: Group) -> KeyhouseError | None:
        """On the thread: wait until it can be prepared, then do everything. What went wrong, if anything."""
        ...

    @abstractmethod
    def _commit(self, group: Group) -> KeyhouseError | None:
        """On the thread: make the group durable. What went wrong, if anything."""
        ...

    @abstractmethod
    def _translated(self, error: Exception) -> Exception:
        """The group's error for the driver's; what it does not know, as it is."""
        ...

    def _confirm(self, failure: KeyhouseError | None) -> None:  # noqa: B027  # not every engine has something to do here
        """On the loop, before the callers are told."""

    def _announce(self) -> None:  # noqa: B027  # not every engine has something to do here
        """On the loop, after they are told."""

    @abstractmethod
    def _release(self) -> None:
        """On the thread: close what is written to."""
        ...

    # What is the same for all

    def submit(self, job: PendingCommit[Answer]) -> asyncio.Future[Answer]:
        """The job's answer, when it is on disk. A caller that is cancelled before its job's group begins takes it back."""
        if self._closed:
            raise self._closed_error()
        if not self._working:
            self._loop = (
                asyncio.get_running_loop()
            )  # asks the system for the process's number: not for each job
            self._working = True
            self._loop.call_soon(self._next)
        job.future = self._loop.create_future()
        self._queue.append(job)
        return job.future

    async def stop(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._working and loop is self._loop:
            self._idle.append(loop.create_future())
            await self._idle[-1]

    async def close(self) -> None:
        """Close what is written to, after `stop`."""
        if self._closing is None:
            self._closing = Future()
            self._thread.send(partial(_told, self._closing, self._release))
            self._thread.end()
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _next(self) -> None:
        group = self._take()
        if not group:
            self._working = False
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            return
        try:
            self._revive()
        except Exception as error:
            self._settle(group, _known(error))
            return
        if group[0].alone:
            self._on_thread(self._whole, group)
        else:
            self._inline(group)

    def _take(self) -> Group:
        """The next group, without what was cancelled; empty only when nothing waits."""
        group: Group = []
        rows = bytes = 0
        while self._queue and len(group) < GROUP_JOBS_MAX:
            job = self._queue[0]
            rows += job.rows
            bytes += job.bytes
            if group and (
                job.alone or group[0].alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX
            ):
                break
            self._queue.popleft()
            if not job.future.cancelled():
                group.append(job)
        return group

    def _inline(self, group: Group) -> None:
        try:
            wrote = self._prepare(group)
        except Wait:
            self._on_thread(self._whole, group)
        except Exception as error:
            self._settle(group, _known(self._translated(error)))
        else:
            if wrote:
                self._on_thread(self._commit, group)
            else:
                self._settle(group, None)

    def _on_thread(self, work: Callable[[Group], KeyhouseError | None], group: Group) -> None:
        loop = self._loop

        def errand() -> None:
            try:
                failure = work(group)
            except BaseException as error:
                failure = _unknown(error)
            with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, group, failure)

        self._thread.send(errand)

    def _settle(self, group: Group, failure: KeyhouseError | None) -> None:
        self._confirm(failure)
        for job in group:
            job.settle(failure)
        self._loop.call_soon(
            self._next
        )  # behind the callers that were just told, so that their next jobs come along
        self._announce()
