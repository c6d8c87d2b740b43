"""Operations and their logs: keys."""

from keyhouse.schema import Counter, Log, Owner, Record
from keyhouse.service.background_records import OperationRun
from keyhouse_audiobooks.records import VERSION, Operation, OperationLine

__all__ = [
    "NEXT_SEQ",
    "OPERATION",
    "OPERATION_LOG",
    "OPERATION_RUN",
]

# Operations and logs

OPERATION = Record(
    Operation,
    "op:{id:ulid}",
    version=VERSION,
    unknown="keep",
    timestamps=("started_at", "completed_at"),
)
NEXT_SEQ = Counter("op:{operation_id:ulid}:next_seq", name="next_seq", belongs_to=Owner(OPERATION))
OPERATION_LOG = Log(
    OperationLine,
    "opl:{operation_id:ulid}:{seq:010d}",
    name="operation_line",
    timestamps=("timestamp",),
    version=VERSION,
    unknown="keep",
    sequence=NEXT_SEQ,
    belongs_to=Owner(OPERATION),
)
OPERATION_RUN = Record(OperationRun, "opr:{id:ulid}", name="operation_run")
