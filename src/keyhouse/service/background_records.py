"""The rows of background operations.

An operation has a run row from its submission to its end: input, progress, checkpoint and lease.
Besides it, the rows that people read, a status and log lines, are written in the same commits, by
an `OperationRecords`: a system whose schema has such rows writes those, others use
`DefaultOperationRecords`.
"""

from typing import Any, Final, Literal, Protocol

import msgspec

from keyhouse.schema import SECONDS, Counter, Log, Record
from keyhouse.store import Transaction

__all__ = [
    "CANCELLED",
    "INTERRUPTED",
    "DefaultOperationRecords",
    "OperationLogLine",
    "OperationRecords",
    "OperationRun",
    "OperationStatus",
    "RunStatus",
]

CANCELLED: Final = "cancelled"
INTERRUPTED: Final = "interrupted"
"""The error of an operation that was cancelled, or whose process died."""

RunStatus = Literal["pending", "running", "completed", "failed"]
Level = Literal["info", "warn", "error"]


class OperationRun(msgspec.Struct, kw_only=True):
    """An operation that has not ended. The commit that ends it deletes this row.

    Only `owner` may continue it until `lease_until`; without an owner it waits in the queue. Times
    are in the clock's milliseconds. `attempts` counts the runners since the last chunk, `chunks`
    the commits of the operation.
    """

    id: str
    type: str
    created_by: str
    queued_at: int
    input: Any = None
    started_at: int | None = None
    current: int = 0
    total: int = 0
    checkpoint: Any = None
    chunks: int = 0
    lines: int = 0
    owner: str = ""
    lease_until: int = 0
    attempts: int = 0
    is_cancelled: bool = False


class OperationRecords(Protocol):
    """Writes the rows of a system's operations."""

    @property
    def run(self) -> Record[OperationRun]:
        """The record of unfinished operations; its key has the field `id`."""
        ...

    async def write(
        self,
        tx: Transaction,
        run: OperationRun,
        status: RunStatus,
        *,
        ended_at: int | None = None,
        error: str | None = None,
    ) -> None:
        """Write the status that people read. `ended_at` and `error` are set at the end.

        An error for a new operation rejects that operation.
        """
        ...

    async def append(self, tx: Transaction, run: OperationRun, level: Level, message: str) -> None:
        """Append a line to the operation's log."""
        ...


class OperationStatus(msgspec.Struct, kw_only=True):
    """The status of an operation. Times are RFC 3339."""

    id: str
    type: str
    status: RunStatus
    created_by: str
    queued_at: str
    started_at: str | None = None
    ended_at: str | None = None
    error: str | None = None
    current: int = 0
    total: int = 0


class OperationLogLine(msgspec.Struct, kw_only=True):
    seq: int = 0
    at: str
    level: Level
    message: str


class DefaultOperationRecords:
    """Records for a system whose document has none, below one prefix. Add `records` to its
    schema."""

    def __init__(self, prefix: str = "operation") -> None:
        self.status = Record(OperationStatus, f"{prefix}:{{id:ulid}}", name=prefix)
        self.sequence = Counter(f"{prefix}-seq:{{id:ulid}}", name=f"{prefix}_seq")
        self.log = Log(
            OperationLogLine,
            f"{prefix}-line:{{id:ulid}}:{{seq:010d}}",
            name=f"{prefix}_line",
            sequence=self.sequence,
        )
        self.run = Record(OperationRun, f"{prefix}-run:{{id:ulid}}", name=f"{prefix}_run")

    @property
    def records(self) -> tuple[Record[Any], ...]:
        return (self.status, self.sequence, self.log, self.run)

    async def write(
        self,
        tx: Transaction,
        run: OperationRun,
        status: RunStatus,
        *,
        ended_at: int | None = None,
        error: str | None = None,
    ) -> None:
        await tx.put(
            self.status,
            OperationStatus(
                id=run.id,
                type=run.type,
                status=status,
                created_by=run.created_by,
                queued_at=SECONDS.format(run.queued_at),
                started_at=None if run.started_at is None else SECONDS.format(run.started_at),
                ended_at=None if ended_at is None else SECONDS.format(ended_at),
                error=error,
                current=run.current,
                total=run.total,
            ),
        )

    async def append(self, tx: Transaction, run: OperationRun, level: Level, message: str) -> None:
        line = OperationLogLine(at=SECONDS.format(tx.now), level=level, message=message)
        await tx.append(self.log, line, id=run.id)
