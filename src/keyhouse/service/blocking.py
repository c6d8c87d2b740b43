"""Threads for calls that block: password hashing, audio tags, files on a slow disk.

The event loop answers every request of the process, so a call of more than a millisecond belongs
here. At most `threads_max` calls run at once and at most `pending_max` wait, in the order in which
they came; further ones are rejected with BusyError. Calls by `run_first` have a separate queue of
the same length, and go before the others.

    state of a call   next
    ---------------   -----------------------------------------------------------------------------
    waiting           a thread is free                    -> running
                      its caller is cancelled             -> gone: it never runs
    running           the function returns or raises      -> done; the first that waits is started
                      its caller is cancelled             -> running: its thread stays in use

Threads are daemons: a function that never returns does not keep the process from exiting.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from keyhouse.errors import BusyError, UnavailableError
from keyhouse.scheduling.timing import Timing
from keyhouse.service.limits import BLOCKING_PENDING_MAX, BLOCKING_THREADS_MAX

__all__ = ["BlockingPool"]

P = ParamSpec("P")
R = TypeVar("R")

DRAIN_SECONDS: Final = 10.0

_log = structlog.get_logger("keyhouse.service")


class BlockingPool:
    """Runs functions in threads: `await pool.run(function, argument)`. Used from one event loop."""

    def __init__(
        self,
        *,
        threads_max: int = BLOCKING_THREADS_MAX,
        pending_max: int = BLOCKING_PENDING_MAX,
    ) -> None:
        self.threads_max = threads_max
        self.pending_max = pending_max
        self.running = 0
        self.rejected = 0
        self.timing = Timing()
        self._pending: deque[asyncio.Future[None]] = deque()
        self._first: deque[asyncio.Future[None]] = deque()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._closed = False

    @property
    def pending(self) -> int:
        return len(self._first) + len(self._pending)

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in a thread and return its result, or raise its exception.

        If the caller is cancelled while it waits, the function is not called; once it runs, it runs
        to its end. Raises BusyError if too many calls wait, UnavailableError during shutdown.
        """
        return await self._run(self._pending, partial(function, *args, **kwargs))

    async def run_first(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as `run` does, before all calls that wait by `run`."""
        return await self._run(self._first, partial(function, *args, **kwargs))

    async def _run(self, queue: deque[asyncio.Future[None]], function: Callable[[], R]) -> R:
        await self._take_slot(queue)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            start = perf_counter()
            try:
                value = context.run(function)
                finish = partial(_resolve, result, value)
            except BaseException as error:
                finish = partial(_reject, result, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._finish, finish, perf_counter() - start)

        self._start_thread()
        self._jobs.put(job)
        return await result

    async def close(self, seconds: float = DRAIN_SECONDS) -> None:
        """Reject further calls, and wait up to `seconds` for those that run. A second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        while turn := self._next():
            turn.set_exception(UnavailableError("The service is shutting down."))
        if self.running:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                _log.warning("blocking calls aborted", running=self.running)
        for _ in range(self._threads):
            self._jobs.put(None)

    async def _take_slot(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._closed:
            raise UnavailableError("The service is shutting down.")
        if self.running < self.threads_max:
            self.running += 1
            return
        if len(queue) >= self.pending_max:
            self.rejected += 1
            raise BusyError(
                "Too many calls wait for a thread; try again later.",
                pending=len(queue),
                limit=self.pending_max,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was given in the same turn
                self.release()
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self) -> None:
        if turn := self._next():
            turn.set_result(None)  # it takes over the slot
            return
        self.running -= 1
        if not self.running:
            self._idle.set()

    def _next(self) -> asyncio.Future[None] | None:
        """Remove and return the call whose turn is next, or None."""
        while self._first or self._pending:
            turn = (self._first or self._pending).popleft()
            if not turn.done():
                return turn
        return None

    def _finish(self, finish: Callable[[], None], seconds: float) -> None:
        self.timing.add(seconds)
        self.release()
        finish()

    def _start_thread(self) -> None:
        """Start a thread if all are in use; threads stay until the pool is closed."""
        if self._threads < self.running:
            self._threads += 1
            threading.Thread(
                target=self._work, name=f"keyhouse-blocking-{self._threads}", daemon=True
            ).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it refers to the caller's arguments

    # Metrics

    def collect(self) -> Iterator[Metric]:
        calls = GaugeMetricFamily(
            "keyhouse_blocking_calls",
            "Blocking calls that run in threads, and that wait for one.",
            labels=["state"],
        )
        calls.add_metric(["running"], self.running)
        calls.add_metric(["pending"], self.pending)
        yield calls
        seconds = HistogramMetricFamily("keyhouse_blocking_seconds", "Duration of blocking calls.")
        seconds.add_metric([], self.timing.rising(), self.timing.seconds)
        yield seconds
        yield CounterMetricFamily(
            "keyhouse_blocking_refused",
            "Blocking calls rejected because too many waited.",
            value=self.rejected,
        )


def _resolve(result: "asyncio.Future[R]", value: R) -> None:
    if not result.done():  # its caller was cancelled
        result.set_result(value)


def _reject(result: "asyncio.Future[Any]", error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future cannot hold it
        cause, error = error, RuntimeError("a blocking call raised StopIteration")
        error.__cause__ = cause
    if not result.done():
        result.set_exception(error)
