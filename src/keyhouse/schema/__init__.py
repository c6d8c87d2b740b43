"""Schemas: typed records, their derived rows, logs that fold, and the proof that keys never clash.

Pure: no I/O, no clock, no async.
"""

from keyhouse.schema.compiled_rows import FromAttribute, KeyValues
from keyhouse.schema.counter import Counter
from keyhouse.schema.derived import BoundDerived, BoundRecordCount, Derived, RecordCount
from keyhouse.schema.document import Compact, compact
from keyhouse.schema.expiry import Expiry, at_field, fixed, per_write, sliding
from keyhouse.schema.index import (
    BoundFirst,
    BoundIndex,
    BoundUnique,
    First,
    Index,
    Unique,
)
from keyhouse.schema.links import NO_LINKS, BoundLink, Owner, RecordLinks, Reference
from keyhouse.schema.log import FoldResult, Log, LogState
from keyhouse.schema.meta import (
    JobState,
    Meta,
    Migration,
    MigrationDone,
    deletion_job,
    migration_job,
)
from keyhouse.schema.operation import Operation, operation
from keyhouse.schema.record import BoundDeclared, BoundRecord, Declared, Record
from keyhouse.schema.schema import BoundSchema, KeyMatch, Schema
from keyhouse.schema.space import RESERVED_SPACES, Space
from keyhouse.schema.summary import BoundSummary, Summary
from keyhouse.schema.times import MILLISECONDS, SECONDS, TimeFormat

__all__ = [
    "MILLISECONDS",
    "NO_LINKS",
    "RESERVED_SPACES",
    "SECONDS",
    "BoundDeclared",
    "BoundDerived",
    "BoundFirst",
    "BoundIndex",
    "BoundLink",
    "BoundRecord",
    "BoundRecordCount",
    "BoundSchema",
    "BoundSummary",
    "BoundUnique",
    "Compact",
    "Counter",
    "Declared",
    "Derived",
    "Expiry",
    "First",
    "FoldResult",
    "FromAttribute",
    "Index",
    "JobState",
    "KeyMatch",
    "KeyValues",
    "Log",
    "LogState",
    "Meta",
    "Migration",
    "MigrationDone",
    "Operation",
    "Owner",
    "Record",
    "RecordCount",
    "RecordLinks",
    "Reference",
    "Schema",
    "Space",
    "Summary",
    "TimeFormat",
    "Unique",
    "at_field",
    "compact",
    "deletion_job",
    "fixed",
    "migration_job",
    "operation",
    "per_write",
    "sliding",
]
