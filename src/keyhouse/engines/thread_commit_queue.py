"""Group commit with one worker thread, for the embedded engines: SQLite and RocksDB.

See `commit_queue` for the theory. The queue is always in one of these states; callbacks move it
on, not a task, so neither a cancelled caller nor a loop that shuts down can stop it half-way:

    state       runs on       next
    ---------   -----------   ------------------------------------------------------------------
    idle        nothing       submit                       -> scheduled
    scheduled   loop          queue empty                  -> idle
                              first write is `alone`       -> blocking
                              otherwise                    -> executing
    executing   loop          nothing to make durable      -> settling
                              rows written                 -> syncing
                              WouldBlock                   -> blocking
                              error                        -> settling, as the group's failure
    syncing     thread        durable, or failed           -> settling
    blocking    thread        executed and durable         -> settling
    settling    loop          always                       -> scheduled

Executing touches memory and the system's cache only, and a group is bounded, so the loop is never
held for long. Work that waits for the disk or for a lock runs on the thread, and so does a write
that is too large for the loop. `scheduled` comes one loop turn after `settling`, so the callers
that were just settled can submit their next writes to the next group.

Callers that wait for their writes come back together, as the group that they were in: one group is
made durable while the callers of the other work. Groups of 4 and 60 writes would stay so, and the
loop would have nothing to do while the 60 are synced. So a group that follows another leaves some
writes to the next: it has the mean of what waits and of the group before it (`_next_count`).
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from keyhouse.engines.commit_queue import (
    Answer,
    CommitGroup,
    CommitQueue,
    PendingWrite,
    unexpected_error,
    unexpected_outcome,
)
from keyhouse.engines.worker_thread import WorkerThread
from keyhouse.errors import KeyhouseError

GROUP_WRITES_MAX: Final = 128
"""Writes in one group."""

GROUP_ROWS_MAX: Final = 1_024
"""Rows read or written by a group that is executed on the event loop: about 2 ms."""

UNDIVIDED_WRITES: Final = 16
"""Writes that are not divided into two groups: a sync costs more."""

GROUP_BYTES_MAX: Final = 1_024 * 1_024
"""Bytes of values in a group that is executed on the event loop."""


class WouldBlock(Exception):
    """The engine cannot take the group without waiting: it is executed on the thread instead."""


class TransactionWrite(PendingWrite[Answer]):
    """A write as a callable on the group's transaction.

    Errors of type `OWN_ERRORS` are the write's own and leave nothing to undo. An error of type
    `EXCLUDING_ERRORS` interrupts the write half-way: the group is executed again without it. Any
    other error is the group's, and is raised.
    """

    OWN_ERRORS: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    EXCLUDING_ERRORS: ClassVar[tuple[type[Exception], ...]] = ()

    __slots__ = ("_work",)

    def __init__(
        self, work: Callable[[Any], Answer], *, rows: int = 0, bytes: int = 0, alone: bool = False
    ) -> None:
        self._work = work
        self.rows = rows
        self.bytes = bytes
        self.alone = alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX
        self.error = None
        self.excluded = False

    def execute(self, transaction: object) -> None:
        """Run the write, and stage its result or its error."""
        self.error = None
        try:
            self.result = self._apply(transaction)
        except self.EXCLUDING_ERRORS as error:
            self.error = error
            self.excluded = True
        except self.OWN_ERRORS as error:
            self.error = error

    def _apply(self, transaction: Any) -> Answer:
        return self._work(transaction)


class ThreadWork(TransactionWrite[Answer]):
    """Work on the thread between two groups, outside a transaction. Its argument is None."""

    __slots__ = ()

    def __init__(self, work: Callable[[Any], Answer]) -> None:
        super().__init__(work, alone=True)


class TransactionGroup(CommitGroup[TransactionWrite[Any]]):
    WRITES_MAX = GROUP_WRITES_MAX
    ROWS_MAX = GROUP_ROWS_MAX
    BYTES_MAX = GROUP_BYTES_MAX

    __slots__ = ()


class ThreadCommitQueue(CommitQueue):
    """The engine executes a group on the loop, syncs it on the thread, finishes it on the loop."""

    def __init__(self, name: str) -> None:
        self._queue: deque[TransactionWrite[Any]] = deque()
        self._thread = WorkerThread(f"keyhouse-{name}")
        self._loop: asyncio.AbstractEventLoop
        self._running = False
        self._writes_before = 0  # of the group that was settled in the turn before
        self.settled = 0
        """Writes settled so far: shows background work whether others write."""
        self._drained: list[asyncio.Future[None]] = []
        self._closing: Future[None] | None = None

    # Implemented by the engine

    def recover(self) -> None:  # optional
        """Repair the state that an earlier group left; an error fails the next group."""

    @abstractmethod
    def execute(self, group: TransactionGroup) -> bool:
        """On the loop: do all but the waiting for the disk. Return False if nothing was written.

        Raises WouldBlock if it would have to wait; any other error is the group's.
        """
        ...

    @abstractmethod
    def make_durable(self, group: TransactionGroup) -> KeyhouseError | None:
        """On the thread: make the executed group durable. Return the group's failure, if any."""
        ...

    @abstractmethod
    def _commit_on_thread(self, group: TransactionGroup) -> KeyhouseError | None:
        """On the thread: execute the group as soon as that is possible, and make it durable."""
        ...

    def _finish(self, failure: KeyhouseError | None) -> None:  # optional
        """On the loop, before the callers are settled: make the group visible to readers."""

    def _announce(self) -> None:  # optional
        """On the loop, after the callers are settled: notify the watches."""

    @abstractmethod
    def _translated(self, error: Exception) -> Exception:
        """Return the engine's error for one of the driver; an unknown one unchanged."""
        ...

    @abstractmethod
    def _close_files(self) -> None:
        """On the thread, after the last group."""
        ...

    # Shared by all engines

    def submit(self, write: TransactionWrite[Answer]) -> asyncio.Future[Answer]:
        """Queue the write; the future has its outcome once the write is on disk."""
        if self._closed:
            raise self._closed_error()
        if not self._running:
            # Once per group, not per write: it asks the system for the process id.
            self._loop = asyncio.get_running_loop()
            self._running = True
            self._loop.call_soon(self._run_next)
        write.future = self._loop.create_future()
        self._queue.append(write)
        return write.future

    async def stop(self) -> None:
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._running and loop is self._loop:
            self._drained.append(loop.create_future())
            await self._drained[-1]

    async def close(self) -> None:
        """Close the files, after `stop`."""
        if self._closing is None:
            self._closing = Future()
            self._thread.send(partial(_resolve, self._closing, self._close_files))
            self._thread.close()
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _run_next(self) -> None:
        group = TransactionGroup()
        group.fill(self._queue, self._next_count())
        self._writes_before = 0
        if not group.writes:
            self._running = False
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            return
        try:
            self.recover()
        except Exception as error:
            self._settle(group, unexpected_error(error))
            return
        if isinstance(group.writes[0], ThreadWork):
            self._on_thread(self._run_work, group)
        elif group.writes[0].alone:
            self._on_thread(self._commit_on_thread, group)
        else:
            self._on_loop(group)

    def _next_count(self) -> int:
        """Return the writes of the next group at most."""
        waiting, before = len(self._queue), self._writes_before
        if not before or waiting <= UNDIVIDED_WRITES:
            return waiting
        return (waiting + before + 1) // 2

    def _on_loop(self, group: TransactionGroup) -> None:
        try:
            wrote = self.execute(group)
        except WouldBlock:
            self._on_thread(self._commit_on_thread, group)
        except Exception as error:
            self._settle(group, unexpected_error(self._translated(error)))
        else:
            if wrote:
                self._on_thread(self.make_durable, group)
            else:
                self._settle(group, None)

    def _run_work(self, group: TransactionGroup) -> KeyhouseError | None:
        (work,) = group.writes
        try:
            work.execute(None)
        except Exception as error:
            return unexpected_error(self._translated(error))
        if work.error is not None:
            work.error = unexpected_error(self._translated(work.error))
        return None

    def _on_thread(
        self, step: Callable[[TransactionGroup], KeyhouseError | None], group: TransactionGroup
    ) -> None:
        loop = self._loop

        def run() -> None:
            try:
                failure = step(group)
            except BaseException as error:
                failure = unexpected_outcome(error)
            with suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(self._settle, group, failure)

        self._thread.send(run)

    def _settle(self, group: TransactionGroup, failure: KeyhouseError | None) -> None:
        self._finish(failure)
        group.settle(failure)
        self.settled += len(group.writes)
        self._writes_before = len(group.writes)
        self._loop.call_soon(self._run_next)
        self._announce()


def _resolve(future: Future[None], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)
