"""Group commit: whatever comes in while one transaction is being written to disk becomes the next transaction.

The statements of a group run on the event loop's thread, where they touch cached pages only; COMMIT, which writes and
syncs the WAL and sometimes checkpoints it, runs on the writer's own thread. To run the statements there too was measured,
and lost: the driver lets go of Python's lock at every statement, and has to win it back from a busy loop. A group is
bounded, so that the loop is never held long. A job that is too large for it runs on the thread as a whole, and so does
a group that finds the file locked by another process, because it has to wait.

Only one of the two threads uses the connection at any moment. Callbacks drive it, not a task: there is nothing that a
cancelled caller, or a loop that shuts down, could stop half way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import apsw

from keyhouse.clock import Clock
from keyhouse.engines.sqlite.faults import translated, translated_commit
from keyhouse.engines.sqlite.file import patiently
from keyhouse.engines.sqlite.job import GROUP_BYTES_MAX, GROUP_JOBS_MAX, GROUP_ROWS_MAX, Answer, Group, Job
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.engines.sqlite.transaction import SpoiledError, Transaction
from keyhouse.errors import ClosedError, KeyhouseError


class Writer:
    """The queue in front of the one connection that writes. `committed` is called on the loop after each group."""

    def __init__(
        self, connection: apsw.Connection, sql: Statements, clock: Clock, committed: Callable[[], None]
    ) -> None:
        self.connection = connection
        self._path = connection.filename
        self._cursor = connection.cursor()
        self._sql = sql
        self._clock = clock
        self._committed = committed
        self._queue: deque[Job[Any]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keyhouse-sqlite")
        self._loop: asyncio.AbstractEventLoop
        self._working = False
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._closing: Future[None] | None = None

    def submit(self, job: Job[Answer]) -> asyncio.Future[Answer]:
        """The job's answer, when it is on disk. A caller that is cancelled before its job's group begins takes it back."""
        if self._closed:
            raise ClosedError("The engine is closed.", file=self._path)
        self._queue.append(job)
        if not self._working:
            self._working = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._next)
        return job.future

    async def stop(self) -> None:
        """Take nothing more, and finish what was submitted."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._working and loop is self._loop:
            self._idle.append(loop.create_future())
            await self._idle[-1]

    async def close(self) -> None:
        """Checkpoint and close the file, after `stop`."""
        if self._closing is None:
            self._closing = self._thread.submit(self.connection.close)
            self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _next(self) -> None:
        group = self._take()
        if not group:
            self._working = False
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
        elif group[0].alone:
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
            if group and (job.alone or group[0].alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX):
                break
            self._queue.popleft()
            if not job.future.cancelled():
                group.append(job)
        return group

    def _inline(self, group: Group) -> None:
        try:
            wrote = self._prepare(group)
        except apsw.BusyError:
            self._on_thread(self._whole, group)
        except Exception as error:
            self._settle(group, translated(error, self._path))
        else:
            if wrote:
                self._on_thread(self._commit, group)
            else:
                self._settle(group, None)

    def _prepare(self, group: Group) -> bool:
        """Do the group's work up to, and without, COMMIT; whether there is anything to commit."""
        gathers = True
        while True:
            self._cursor.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(self._cursor, self._sql, self._clock.now(), gathers=gathers)
                sound = self._run(group, transaction)
            except SpoiledError:
                self._roll_back()
                gathers = False
                continue
            except BaseException:
                self._roll_back()
                raise
            if sound and transaction.wrote:
                return True
            self._roll_back()
            if sound:
                return False

    def _run(self, group: Group, transaction: Transaction) -> bool:
        for job in group:
            if not job.poisoned:
                job.run(transaction)
                if job.poisoned:
                    return False
        transaction.finish()
        return True

    def _whole(self, group: Group) -> KeyhouseError | None:
        """On the thread: wait for the lock, then do everything. What went wrong, if anything."""
        try:
            wrote = patiently(lambda: self._prepare(group))
        except Exception as error:
            return translated(error, self._path)
        return self._commit(group) if wrote else None

    def _commit(self, group: Group) -> KeyhouseError | None:
        """On the thread: make the group durable. What went wrong, if anything."""
        try:
            self._cursor.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return translated_commit(error, self._path)
        return None

    def _roll_back(self) -> None:
        """SQLite has often done so itself, after an error that spoils the transaction."""
        if self.connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _on_thread(self, work: Callable[[Group], KeyhouseError | None], group: Group) -> None:
        loop = self._loop

        def done(outcome: Future[KeyhouseError | None]) -> None:
            with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, group, outcome.result())

        self._thread.submit(work, group).add_done_callback(done)

    def _settle(self, group: Group, failure: KeyhouseError | None) -> None:
        for job in group:
            job.settle(failure)
        self._loop.call_soon(self._next)  # behind the callers that were just told, so that their next jobs come along
        self._committed()
