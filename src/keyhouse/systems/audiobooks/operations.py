"""The operations of the library, in the document's rows: `op:` and `opl:`, plus the run row."""

from typing import Any, Literal, cast

from keyhouse.clock import IdSource
from keyhouse.schema import SECONDS
from keyhouse.service.background_records import OperationRun, RunStatus
from keyhouse.store import Transaction, append_in
from keyhouse.systems.audiobooks.records import Operation, OperationLine, OperationProgress
from keyhouse.systems.audiobooks.schema import OPERATION, OPERATION_LOG, OPERATION_RUN

__all__ = ["LibraryOperationRecords"]

Level = Literal["info", "warn", "error"]


class LibraryOperationRecords:
    """Writes status and log lines of background operations."""

    run = OPERATION_RUN

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
            OPERATION,
            Operation(
                id=run.id,
                type=cast(Any, run.type),
                status=status,
                started_at=None if run.started_at is None else SECONDS.format(run.started_at),
                completed_at=None if ended_at is None else SECONDS.format(ended_at),
                error=error,
                progress=OperationProgress(current=run.current, total=run.total),
                created_by=run.created_by,
            ),
        )

    async def append(
        self, tx: Transaction, ids: IdSource, run: OperationRun, level: Level, message: str
    ) -> None:
        line = OperationLine(timestamp=SECONDS.format(tx.now), level=level, message=message)
        await append_in(tx, ids, OPERATION_LOG, line, operation_id=run.id)
