"""One running background operation, as its function sees it: input, checkpoint, chunks, log."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog
from msgspec import UNSET, UnsetType

from keyhouse.errors import (
    ConflictError,
    KeyhouseError,
    LeaseError,
    UnavailableError,
    UnknownOutcomeError,
)
from keyhouse.service.background_records import Level, OperationRecords, OperationRun
from keyhouse.service.limits import OPERATION_LINE_CHARS_MAX, OPERATION_LINES_MAX
from keyhouse.store import Store, Transaction

__all__ = ["OperationCancelledError", "OperationTask", "retrying"]

R = TypeVar("R")

RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0
"""Backoff of a commit while the engine is not reachable: doubled each time, up to this."""

_log = structlog.get_logger("keyhouse.service")


class OperationCancelledError(ConflictError):
    """The operation was cancelled: its function should return or let this pass."""


class OperationTask:
    """`input` is that of the submission. `checkpoint` is the last one committed, of an earlier
    runner too; None at first."""

    def __init__(
        self,
        store: Store,
        records: OperationRecords,
        run: OperationRun,
        *,
        lease_ms: int,
    ) -> None:
        self.store = store
        self.id = run.id
        self.type = run.type
        self.created_by = run.created_by
        self.input = run.input
        self.checkpoint = run.checkpoint
        self.current = run.current
        self.total = run.total
        self.is_cancelled = run.is_cancelled
        self.is_lost = False
        """True once another runner has taken the operation over."""
        self.cancel_raised = False
        """True once its function got OperationCancelledError."""
        self._records = records
        self._owner = run.owner
        self._chunks = run.chunks
        self._lease_ms = lease_ms
        self._lines: list[tuple[Level, str]] = []

    def log(self, message: str, level: Level = "info") -> None:
        """Add a line to the operation's log. It is written by the next commit of the operation."""
        if len(message) > OPERATION_LINE_CHARS_MAX:
            message = message[: OPERATION_LINE_CHARS_MAX - 1] + "…"
        if len(self._lines) < OPERATION_LINES_MAX:
            self._lines.append((level, message))

    async def commit(
        self,
        work: Callable[[Transaction], Awaitable[R]] | None = None,
        *,
        checkpoint: Any | UnsetType = UNSET,
        current: int | None = None,
        total: int | None = None,
    ) -> R | None:
        """Commit one chunk: what `work` writes, the progress, the log lines and the checkpoint, all
        or nothing.

        Raises OperationCancelledError if the operation was cancelled and LeaseError if another
        runner has taken it over; nothing is written then. While the engine is not reachable it
        retries, and a chunk whose outcome was unknown is not applied again. `work` may be called
        several times, and must only read and write through the transaction.
        """
        lines = self._lines.copy()
        result: R | None = None

        async def chunk(tx: Transaction) -> OperationRun:
            nonlocal result
            run = await self.held(tx)
            if run.chunks > self._chunks:
                return run  # the first attempt was applied
            if run.is_cancelled:
                self.is_cancelled = self.cancel_raised = True
                raise OperationCancelledError("The operation was cancelled.", id=self.id)
            result = None if work is None else await work(tx)
            if checkpoint is not UNSET:
                run.checkpoint = checkpoint
            run.current = run.current if current is None else current
            run.total = run.total if total is None else total
            run.chunks += 1
            run.attempts = 0
            run.lease_until = tx.now + self._lease_ms
            await append_lines(tx, self.store, self._records, run, lines)
            await self._records.write(tx, run, "running")
            await tx.put(self._records.run, run)
            return run

        run = await retrying(lambda: self.store.transact(chunk))
        self._chunks = run.chunks
        del self._lines[: len(lines)]
        self.checkpoint, self.current, self.total = run.checkpoint, run.current, run.total
        return result

    async def keep_lease(self, interrupt: Callable[[], object]) -> None:
        """Renew the lease until cancelled. Calls `interrupt` if another runner has it."""

        async def renew(tx: Transaction) -> bool:
            run = await self.held(tx)
            run.lease_until = tx.now + self._lease_ms
            await tx.put(self._records.run, run)
            return run.is_cancelled

        pause = self._lease_ms / 3_000
        while True:
            await asyncio.sleep(pause)
            pause = self._lease_ms / 3_000
            try:
                self.is_cancelled = await self.store.transact(renew) or self.is_cancelled
            except LeaseError:
                interrupt()
                return
            except KeyhouseError as error:  # the next attempt may succeed before the lease expires
                _log.warning("lease not renewed", operation=self.id, error=str(error))
                pause /= 4

    def take_lines(self) -> list[tuple[Level, str]]:
        lines, self._lines = self._lines, []
        return lines

    async def held(self, tx: Transaction) -> OperationRun:
        """Return the run. Raises LeaseError if another runner has taken it over."""
        run = await tx.get(self._records.run, id=self.id)
        if run is None or run.owner != self._owner:
            self.is_lost = True
            raise LeaseError("Another runner has taken this operation over.", id=self.id)
        return run


async def append_lines(
    tx: Transaction,
    store: Store,
    records: OperationRecords,
    run: OperationRun,
    lines: list[tuple[Level, str]],
) -> None:
    """Append lines to the log, up to the limit of one operation."""
    for level, message in lines:
        if run.lines >= OPERATION_LINES_MAX:
            return
        run.lines += 1
        if run.lines == OPERATION_LINES_MAX:
            level, message = "warn", "The log is full: further lines are not kept."
        await records.append(tx, run, level, message)


async def retrying(work: Callable[[], Awaitable[R]]) -> R:
    """Repeat work until the engine is reachable and its outcome known."""
    pause = RETRY_SECONDS
    while True:
        with suppress(UnavailableError, UnknownOutcomeError):
            return await work()
        await asyncio.sleep(pause)
        pause = min(2 * pause, RETRY_SECONDS_MAX)
