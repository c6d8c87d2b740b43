"""Keyhouse: declare a keyspace once, and get a typed, transactional, isolated store on your engine.

A program needs only these names: declare with `Record`, `Index`, … and `Schema`, open an engine
with `open_engine`, read and write with a `Store`.
"""

from typing import TYPE_CHECKING

from keyhouse.clock import Clock, IdSource, ManualClock, SystemClock, UlidSource
from keyhouse.engines.registry import open_engine
from keyhouse.errors import KeyhouseError
from keyhouse.keyring import KeyRing
from keyhouse.keys import (
    NATS,
    Choice,
    Day,
    Descending,
    FixedPoint,
    Integer,
    NormalizedText,
    OptionalSegment,
    Regex,
    Span,
    Template,
    TextSegment,
    Timestamp,
    Ulid,
    normal,
)
from keyhouse.opened_store import open_store
from keyhouse.remote_store import RemoteStore
from keyhouse.schema import (
    MILLISECONDS,
    SECONDS,
    Counter,
    First,
    FoldResult,
    Index,
    Log,
    LogState,
    Meta,
    Migration,
    Owner,
    Record,
    RecordCount,
    Reference,
    Schema,
    Space,
    Summary,
    Unique,
    at_field,
    fixed,
    per_write,
    sliding,
)
from keyhouse.store import (
    Entry,
    Event,
    Finding,
    RecordPage,
    Store,
    Transaction,
    UnreadableRow,
    append,
    fold,
    migrate,
    prune,
    reindex,
    reseal,
    resume_deletions,
    run_job,
    sweep,
    verify,
)
from keyhouse.systems.registry import load_system

if not TYPE_CHECKING:  # a type checker sees the present names only
    from keyhouse.renamed import __getattr__ as __getattr__

__all__ = [
    "MILLISECONDS",
    "NATS",
    "SECONDS",
    "Choice",
    "Clock",
    "Counter",
    "Day",
    "Descending",
    "Entry",
    "Event",
    "Finding",
    "First",
    "FixedPoint",
    "FoldResult",
    "IdSource",
    "Index",
    "Integer",
    "KeyRing",
    "KeyhouseError",
    "Log",
    "LogState",
    "ManualClock",
    "Meta",
    "Migration",
    "NormalizedText",
    "OptionalSegment",
    "Owner",
    "Record",
    "RecordCount",
    "RecordPage",
    "Reference",
    "Regex",
    "RemoteStore",
    "Schema",
    "Space",
    "Span",
    "Store",
    "Summary",
    "SystemClock",
    "Template",
    "TextSegment",
    "Timestamp",
    "Transaction",
    "Ulid",
    "UlidSource",
    "Unique",
    "UnreadableRow",
    "append",
    "at_field",
    "fixed",
    "fold",
    "load_system",
    "migrate",
    "normal",
    "open_engine",
    "open_store",
    "per_write",
    "prune",
    "reindex",
    "reseal",
    "resume_deletions",
    "run_job",
    "sliding",
    "sweep",
    "verify",
]

__version__ = "0.1.0"
