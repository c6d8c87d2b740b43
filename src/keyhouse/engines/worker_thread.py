"""A worker thread: runs jobs that wait for the disk, one after the other.

An executor creates a future with its own locks for each job; a commit in a group of small writes
costs the loop less than that. So the executor's thread stays while there are jobs, and receives
them through a plain queue:

    state      next
    --------   ---------------------------------------------------------------------------------
    absent     send: submit the thread to the executor     -> running
    running    no job for IDLE_SECONDS                     -> absent
               RESUBMIT_SECONDS passed                     -> running, submitted again
               close                                       -> absent, for good

An idle thread leaves, so the interpreter can exit although nobody closed the engine. A busy thread
returns to the executor at least once every RESUBMIT_SECONDS: at interpreter shutdown the executor
rejects it, and later jobs run inline in the thread that sends them.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

IDLE_SECONDS: Final = 0.05
"""The thread leaves when no job arrives for this long."""

RESUBMIT_SECONDS: Final = 1.0
"""The longest that interpreter shutdown waits for a thread that is never idle."""

Job = Callable[[], None]
"""Must not raise, and must not send another job."""


class WorkerThread:
    """`send` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running = False

    def send(self, job: Job | None) -> None:
        """Run the job after all that were sent before it."""
        self._queue.put(job)
        with self._lock:
            if self._running:
                return
            self._running = True
        self._start()

    def close(self) -> None:
        """Let the thread finish its jobs and leave. No job may be sent after it."""
        self.send(None)
        self._executor.shutdown(wait=False)

    def _start(self) -> None:
        try:
            self._executor.submit(self._run)
        except RuntimeError:  # interpreter shutdown: no thread can be started any more
            with self._lock:
                self._running = False
                self._run_inline()

    def _run_inline(self) -> None:
        with suppress(Empty):
            while (job := self._queue.get_nowait()) is not None:
                job()

    def _run(self) -> None:
        until = monotonic() + RESUBMIT_SECONDS
        while monotonic() < until:
            try:
                job = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._queue.empty():  # a later `send` finds that no thread runs
                        self._running = False
                        return
                continue
            if job is None:
                return
            job()
            del job  # it refers to the outcomes of its callers
        self._start()
