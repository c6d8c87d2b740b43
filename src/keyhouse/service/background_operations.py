"""Background operations: work that outlives a request, with progress, a log, cancellation and
recovery.

Theory of operation. The run row (`OperationRun`) decides everything; each change of it is a
transaction that checks it.

    run row                 next
    ---------------------   -----------------------------------------------------------------
    absent                  submit                              -> queued
                            start                               -> owned
    queued: no owner        a runner has room                   -> owned, `attempts` + 1
                            cancel                              -> absent: failed, cancelled
    owned, lease valid      a chunk, or the lease is renewed    -> owned
                            cancel                              -> owned, `is_cancelled`
                            the function returns                -> absent: completed
                            it raises                           -> absent: failed
                            shutdown                            -> queued, if it resumes
                                                                -> absent: failed, interrupted
    owned, lease expired    found by any runner: the process died
                              it was cancelled                  -> absent: failed, cancelled
                              it resumes                        -> owned by the finder
                              else, or it died too often        -> absent: failed, interrupted

The commit that deletes the run row also writes the final status, so an operation ends exactly once.
A runner that lost its lease can commit nothing more: every chunk checks the owner.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from keyhouse.advice.nearest import nearest
from keyhouse.errors import BusyError, KeyhouseError, UsageError
from keyhouse.nats.bus import Bus
from keyhouse.service.background_records import (
    CANCELLED,
    INTERRUPTED,
    OperationRecords,
    OperationRun,
    RunStatus,
)
from keyhouse.service.background_task import (
    OperationCancelledError,
    OperationTask,
    append_lines,
    retrying,
)
from keyhouse.service.limits import OPERATION_ATTEMPTS_MAX, OPERATIONS_PENDING_MAX
from keyhouse.store import Store, Transaction

__all__ = ["BackgroundOperations", "OperationKind"]

LEASE_SECONDS: Final = 12.0
POLL_SECONDS: Final = 10.0
"""Interval at which a runner looks for operations that other processes have submitted. The lease of
one that it has seen it looks at when it expires."""

LEASE_MARGIN_SECONDS: Final = 0.1

STOP_SECONDS: Final = 5.0
"""Timeout for giving operations back at shutdown."""

_log = structlog.get_logger("keyhouse.service")


class _TakenOver(Exception):
    """Another runner has the operation."""


class OperationKind(msgspec.Struct, frozen=True, kw_only=True):
    """A type of operation. `run` does the work, in chunks; what it returns is for `start`.

    `resumes`: after a crash or a restart it runs again, from its last checkpoint; otherwise it has
    then failed. `exclusive`: only one of the type runs at a time in a space.
    """

    run: Callable[[OperationTask], Awaitable[Any]]
    resumes: bool = False
    exclusive: bool = False


class BackgroundOperations:
    """Runs the operations of a service: put `operations.run` among its tasks.

    `store` is the store of the operations, or a function that returns the one of a space; then
    `spaces` iterates over the spaces that may have some. At most `concurrency` run at once in a
    process, and `pending_max` wait or run in a space. `name` is the system, for metrics. With a
    `bus`, a submission wakes the runners of the other processes.
    """

    def __init__(
        self,
        store: Store | Callable[[str], Store],
        records: OperationRecords,
        kinds: Mapping[str, OperationKind],
        *,
        name: str,
        spaces: Callable[[], AsyncIterable[str]] | None = None,
        concurrency: int = 2,
        pending_max: int = OPERATIONS_PENDING_MAX,
        lease_seconds: float = LEASE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        bus: Bus | None = None,
    ) -> None:
        if not isinstance(store, Store) and spaces is None:
            raise UsageError(
                "Operations of several spaces need `spaces`, which iterates over them."
            )
        self._store = store
        self._records = records
        self._kinds = dict(kinds)
        self._name = name
        self._spaces = spaces
        self._concurrency = concurrency
        self._pending_max = pending_max
        self._lease_ms = round(1_000 * lease_seconds)
        self._poll_seconds = poll_seconds
        self._bus = bus
        self._subject = f"keyhouse.control.operations.{name}"
        self._lease_left = inf
        """Seconds until the first lease of another process expires."""
        self.running: dict[str, OperationTask] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._ended: dict[tuple[str, str], int] = {}

    # For handlers

    async def submit(
        self, type: str, input: Any = None, *, created_by: str = "", space: str = ""
    ) -> str:
        """Queue an operation and return its id. `input` is any JSON value.

        Raises BusyError if `pending_max` operations of the space have not ended.
        """
        store = self._store_of(space)
        run = self._new(store, type, input, created_by)
        active, _ = await store.keys(self._records.run, limit=self._pending_max)
        if len(active) >= self._pending_max:
            raise BusyError("Too many operations wait; try again later.", limit=self._pending_max)
        await self._record(store, run, "pending")
        self._wake.set()
        if self._bus is not None:
            with suppress(KeyhouseError):  # the others look at their interval
                await self._bus.publish(self._subject, b"")
        return run.id

    async def start(
        self, type: str, input: Any = None, *, created_by: str = "", space: str = ""
    ) -> "asyncio.Future[Any]":
        """Start an operation in this process, without waiting for others; return the call of its
        function, which has its result.

        Records that allow one operation at a time raise in `write`, in the commit that starts it.
        """
        store = self._store_of(space)
        run = self._new(store, type, input, created_by)
        run.owner, run.lease_until = store.ids.new(), run.queued_at + self._lease_ms
        run.started_at, run.attempts = run.queued_at, 1
        await self._record(store, run, "running")
        return self._start(store, run)

    def _new(self, store: Store, type: str, input: Any, created_by: str) -> OperationRun:
        if type not in self._kinds:
            raise UsageError("No such operation.", type=type, **nearest(type, sorted(self._kinds)))
        now = store.engine.clock.now()
        return OperationRun(
            id=store.ids.new(), type=type, created_by=created_by, queued_at=now, input=input
        )

    async def _record(self, store: Store, run: OperationRun, status: RunStatus) -> None:
        async def record(tx: Transaction) -> None:
            await self._records.write(tx, run, status)
            await tx.put(self._records.run, run)

        await store.transact(record, batch_id=f"operation-{run.id}")

    async def cancel(self, id: str, *, space: str = "") -> bool:
        """Cancel an operation; returns False if it has ended, or never existed.

        A waiting one ends at once, a running one before its next chunk.
        """
        store = self._store_of(space)

        async def flag(tx: Transaction) -> str | None:
            run = await tx.get(self._records.run, id=id)
            if run is None:
                return None
            if not run.owner or run.lease_until <= tx.now:
                await self._end_in(tx, run, CANCELLED)
                return run.type
            run.is_cancelled = True
            await tx.put(self._records.run, run)
            return ""

        ended = await store.transact(flag)
        if ended:
            self._count(ended, CANCELLED)
        if (task := self.running.get(id)) is not None and ended is not None:
            task.is_cancelled = True
        return ended is not None

    async def wait(self, id: str, *, space: str = "", poll_seconds: float = 0.2) -> None:
        """Wait until an operation has ended, in whatever process it runs."""
        store = self._store_of(space)
        while await store.get(self._records.run, id=id) is not None:
            await asyncio.sleep(poll_seconds)

    # The runner

    async def run(self) -> None:
        """Run operations until cancelled; then those that run are released or interrupted."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                self._wake.clear()
                try:
                    await self._start_due()
                except KeyhouseError as error:  # those that run continue
                    _log.warning("operations not started", system=self._name, error=str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(self._poll_seconds, self._lease_left)):
                        await self._wake.wait()
        finally:
            listening.cancel()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(listening, *self.tasks, return_exceptions=True)

    async def _listen(self) -> None:
        """Look when another process says that it has submitted an operation."""
        if self._bus is not None and self._bus.is_on:
            async with self._bus.subscribe(self._subject) as submissions:
                async for _ in submissions:
                    self._wake.set()

    async def _start_due(self) -> None:
        self._lease_left = inf
        async for store in self._stores():
            entries = [entry.record async for entry in store.scan(self._records.run)]
            now = store.engine.clock.now()
            for run in entries:
                if len(self.running) >= self._concurrency:
                    return
                if run.type not in self._kinds or run.id in self.running:
                    continue
                if run.lease_until > now:
                    left = (run.lease_until - now) / 1_000 + LEASE_MARGIN_SECONDS
                    self._lease_left = min(self._lease_left, left)
                    continue
                others = [each.id for each in entries if each.type == run.type and each is not run]
                owner = store.ids.new()
                claimed = await store.transact(partial(self.claim, store, run.id, owner, others))
                if claimed is None:
                    continue
                if self._kinds[run.type].exclusive and await self.meets_another(store, claimed):
                    await store.transact(partial(self._release, store, claimed.id, owner))
                else:
                    self._start(store, claimed)

    async def meets_another(self, store: Store, claimed: OperationRun) -> bool:
        """Return whether another operation of an exclusive type was claimed too: one that was
        submitted after `others` were listed. Of two runners that claim and then look, the second at
        least sees the first; if both see each other, both try again later."""
        runs = [entry.record async for entry in store.scan(self._records.run)]
        return any(run.owner and run.type == claimed.type and run.id != claimed.id for run in runs)

    async def _release(self, store: Store, id: str, owner: str, tx: Transaction) -> None:
        """Give an operation back before it has started."""
        run = await tx.get(self._records.run, id=id)
        if run is not None and run.owner == owner:
            run.owner, run.lease_until, run.attempts = "", 0, run.attempts - 1
            await self._records.write(tx, run, "pending")
            await tx.put(self._records.run, run)

    async def claim(
        self, store: Store, id: str, owner: str, others: list[str], tx: Transaction
    ) -> OperationRun | None:
        run = await tx.get(self._records.run, id=id)
        if run is None or run.lease_until > tx.now:
            return None
        kind = self._kinds[run.type]
        if run.is_cancelled:
            await self._end_in(tx, run, CANCELLED)
            return None
        if run.owner and (not kind.resumes or run.attempts >= OPERATION_ATTEMPTS_MAX):
            await self._end_in(tx, run, INTERRUPTED)
            return None
        for other in others if kind.exclusive else ():
            started = await tx.get(self._records.run, id=other)
            if started is None or not started.owner:
                continue
            # One that was started continues first, even if its lease has expired: its runner may
            # only be cut off. Of two such, which there should not be, the older one.
            if not run.owner or started.lease_until > tx.now or other < id:
                return None
        if run.owner:
            message = "The process that ran the operation ended: it continues."
            await append_lines(tx, store, self._records, run, [("warn", message)])
        run.owner, run.lease_until = owner, tx.now + self._lease_ms
        run.started_at = run.started_at or tx.now
        run.attempts += 1
        await self._records.write(tx, run, "running")
        await tx.put(self._records.run, run)
        return run

    async def _end_in(self, tx: Transaction, run: OperationRun, error: str | None) -> None:
        """Write the end of an operation in a transaction."""
        status: RunStatus = "completed" if error is None else "failed"
        await self._records.write(tx, run, status, ended_at=tx.now, error=error)
        await tx.delete(self._records.run, id=run.id)

    def _start(self, store: Store, run: OperationRun) -> "asyncio.Future[Any]":
        task = OperationTask(store, self._records, run, lease_ms=self._lease_ms)
        self.running[run.id] = task
        working = asyncio.ensure_future(self._kinds[run.type].run(task))
        running = asyncio.create_task(self._execute(task, run.owner, working))
        self.tasks.add(running)
        running.add_done_callback(self.tasks.discard)
        running.add_done_callback(lambda _: working.cancel())  # if it was cancelled at its start
        return working

    async def _execute(
        self, task: OperationTask, owner: str, working: "asyncio.Future[Any]"
    ) -> None:
        kind = self._kinds[task.type]
        leasing = asyncio.create_task(task.keep_lease(working.cancel))
        log = _log.bind(system=self._name, operation=task.id, type=task.type)
        try:
            error = await _outcome(task, working, log)
            await self._end(task, owner, error)
        except _TakenOver:
            log.warning("operation taken over by another runner")
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            with suppress(KeyhouseError, TimeoutError):  # its lease expires
                async with asyncio.timeout(STOP_SECONDS):
                    await self._stop(task, owner, working, resumes=kind.resumes)
            raise
        finally:
            leasing.cancel()
            del self.running[task.id]
            self._wake.set()

    async def _end(self, task: OperationTask, owner: str, error: str | None) -> None:
        lines = task.take_lines()

        async def end(tx: Transaction) -> bool:
            run = await tx.get(self._records.run, id=task.id)
            if run is None or run.owner != owner:
                return False
            await append_lines(tx, task.store, self._records, run, lines)
            await self._end_in(tx, run, error)
            return True

        await retrying(lambda: task.store.transact(end))
        self._count(task.type, "completed" if error is None else _outcome_label(error))

    async def _stop(
        self, task: OperationTask, owner: str, working: "asyncio.Future[Any]", *, resumes: bool
    ) -> None:
        """Give an operation back at shutdown, or end it."""
        if not working.cancelled() and working.exception() is None:  # it was about to end
            return await self._end(task, owner, None)

        async def release(tx: Transaction) -> None:
            run = await tx.get(self._records.run, id=task.id)
            if run is None or run.owner != owner:
                return
            if resumes and not run.is_cancelled:
                run.owner, run.lease_until, run.attempts = "", 0, 0
                message = "The service stops: the operation continues at its next start."
                await append_lines(tx, task.store, self._records, run, [("warn", message)])
                await self._records.write(tx, run, "pending")
                await tx.put(self._records.run, run)
            else:
                await self._end_in(tx, run, CANCELLED if run.is_cancelled else INTERRUPTED)

        return await task.store.transact(release)

    # Spaces

    def _store_of(self, space: str) -> Store:
        return self._store if isinstance(self._store, Store) else self._store(space)

    async def _stores(self) -> AsyncIterator[Store]:
        if isinstance(self._store, Store):
            yield self._store
        elif self._spaces is not None:
            async for space in self._spaces():
                yield self._store(space)

    # Metrics

    def _count(self, type: str, outcome: str) -> None:
        key = (type, outcome)
        self._ended[key] = self._ended.get(key, 0) + 1

    def collect(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            f"{self._name}_operations",
            "Background operations that ended in this process, by type and outcome.",
            labels=["type", "outcome"],
        )
        for (type, outcome), count in self._ended.copy().items():
            ended.add_metric([type, outcome], count)
        yield ended
        yield GaugeMetricFamily(
            f"{self._name}_operations_running",
            "Background operations that run in this process.",
            value=len(self.running),
        )


async def _outcome(task: OperationTask, working: "asyncio.Future[Any]", log: Any) -> str | None:
    """Wait for an operation's function, and return the error that it ends with; None if none."""
    try:
        await asyncio.shield(working)
    except OperationCancelledError:
        return CANCELLED
    except asyncio.CancelledError:
        if task.is_lost:
            raise _TakenOver from None
        if working.cancelled() and not _is_cancelling():
            return INTERRUPTED  # something that it awaited was cancelled
        raise
    except KeyhouseError as error:
        if task.is_lost:
            raise _TakenOver from None
        log.warning("operation failed", error=str(error))
        return str(error)
    except Exception as error:
        log.exception("operation failed")
        return f"Unhandled exception: {type(error).__name__}."
    return CANCELLED if task.cancel_raised else None


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _outcome_label(error: str) -> str:
    return error if error in (CANCELLED, INTERRUPTED) else "failed"
