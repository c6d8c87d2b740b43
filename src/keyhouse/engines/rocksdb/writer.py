"""Group commit: whatever comes in while one group is being written to disk becomes the next group.

A group is prepared and written on the event loop's thread, in memory and into the system's cache; the sync that makes it
durable runs on the writer's own thread. A group is bounded, so that the loop is never held long. A job that is too large for
it runs on the thread as a whole, and so does a group that RocksDB is not ready to take, because it has to wait.

Callbacks drive it, not a task: there is nothing that a cancelled caller, or a loop that shuts down, could stop half way.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engines.rocksdb.database import Database, Stall
from keyhouse.engines.rocksdb.encoding import Keys
from keyhouse.engines.rocksdb.faults import CLOSED, STALLED
from keyhouse.engines.rocksdb.job import GROUP_BYTES_MAX, GROUP_JOBS_MAX, GROUP_ROWS_MAX, Answer, Group, Job
from keyhouse.engines.rocksdb.transaction import Transaction
from keyhouse.engines.rocksdb.view import View
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

STALL_SECONDS: Final = 60.0
"""How long RocksDB may take to be ready for a write, before the caller is told."""

STALL_RETRY_SECONDS: Final = 0.002

Committed = Callable[[list[tuple[int, Keys]]], None]


class Writer:
    """The queue in front of the database. `committed` is told, on the loop, what each durable group did."""

    def __init__(self, database: Database, view: View, clock: Clock, committed: Committed) -> None:
        self._database = database
        self._view = view
        self._clock = clock
        self._committed = committed
        self._written: Transaction | None = None  # and not yet known to be durable
        self._queue: deque[Job[Any]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keyhouse-rocksdb")
        self._loop: asyncio.AbstractEventLoop
        self._working = False
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._closing: Future[None] | None = None

    def submit(self, job: Job[Answer]) -> asyncio.Future[Answer]:
        """The job's answer, when it is on disk. A caller that is cancelled before its job's group begins takes it back."""
        if self._closed:
            raise ClosedError(CLOSED, folder=self._database.folder)
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
        """Close the database, after `stop`."""
        if self._closing is None:
            self._closing = self._thread.submit(self._database.close)
            self._thread.shutdown(wait=False)
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
        except KeyhouseError as error:
            self._settle(group, error)
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
            if group and (job.alone or group[0].alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX):
                break
            self._queue.popleft()
            if not job.future.cancelled():
                group.append(job)
        return group

    def _revive(self) -> None:
        """Open the database anew after a failure. On the loop, so that no read comes between: rare, and slow."""
        if self._database.failed is not None or not self._database.is_open:
            self._view.reopen()

    def _inline(self, group: Group) -> None:
        try:
            wrote = self._write(group)
        except Stall:
            self._on_thread(self._whole, group)
        except KeyhouseError as error:
            self._settle(group, error)
        else:
            if wrote:
                self._on_thread(self._sync, group)
            else:
                self._settle(group, None)

    def _write(self, group: Group) -> bool:
        """Do the group's work up to, and without, the sync; whether there is anything to sync."""
        transaction = Transaction(self._database, self._view.revision, self._view.oldest, self._clock.now())
        for job in group:
            job.run(transaction)
        if transaction.batch.is_empty():
            return False
        self._view.hold(transaction.rows)
        self._database.write(transaction.batch)
        self._written = transaction
        return True

    def _whole(self, group: Group) -> KeyhouseError | None:
        """On the thread: wait until RocksDB is ready, then do everything. What went wrong, if anything."""
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                return self._sync(group) if self._write(group) else None
            except Stall as stall:
                if time.monotonic() >= deadline:
                    return UnavailableError(STALLED, folder=self._database.folder, detail=str(stall.__cause__))
                time.sleep(STALL_RETRY_SECONDS)
            except KeyhouseError as error:
                return error

    def _sync(self, group: Group) -> KeyhouseError | None:
        """On the thread: make the group durable. What went wrong, if anything."""
        try:
            self._database.sync()
        except KeyhouseError as error:
            return error
        return None

    def _on_thread(self, work: Callable[[Group], KeyhouseError | None], group: Group) -> None:
        loop = self._loop

        def done(outcome: Future[KeyhouseError | None]) -> None:
            with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, group, outcome.result())

        self._thread.submit(work, group).add_done_callback(done)

    def _settle(self, group: Group, failure: KeyhouseError | None) -> None:
        written, self._written = self._written, None
        if written is not None and failure is None:
            self._view.refresh(written.revision, written.oldest)
        for job in group:
            job.settle(failure)
        self._loop.call_soon(self._next)  # behind the callers that were just told, so that their next jobs come along
        if written is not None and failure is None:
            self._committed(written.commits)
