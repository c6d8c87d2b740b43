"""The store: a schema on an engine. Typed reads and writes, transactions, watches, sweep, verify,
migrations and jobs; and whole stores moved, backed up, exported and imported.

It names no engine: any implementation of `keyhouse.engine` will do.
"""

from keyhouse.schema.space import MARK_SPACE
from keyhouse.store.entry import ANY, Entry, Event, RecordPage, Unset, UsagePage
from keyhouse.store.jobs.bulk_delete import BulkDelete, BulkDeleteResult
from keyhouse.store.jobs.cascade_delete import resume_deletions
from keyhouse.store.jobs.delete_records import clear
from keyhouse.store.jobs.erase_space import FORGET_KEY, forget
from keyhouse.store.jobs.index_state import (
    build_indexes,
    declared_indexes,
    index_progress,
    missing_indexes,
    note_new_space,
    unbuilt_indexes,
)
from keyhouse.store.jobs.interruptions import Resumed, can_be_interrupted, resume_interrupted
from keyhouse.store.jobs.job import forget_job, run_job, try_job
from keyhouse.store.jobs.key_migration import KeyMigrationResult, migrate_keys
from keyhouse.store.jobs.logs import fold, prune
from keyhouse.store.jobs.migrate import MigrationResult, migrate, open_migrated, reindex, version
from keyhouse.store.jobs.prefix_conversion import PrefixConversion, convert_prefix
from keyhouse.store.jobs.reseal import has_sealed, reseal
from keyhouse.store.jobs.sweep import sweep
from keyhouse.store.reads.bounded_reads import (
    first_entries,
    page_within,
    record_keys,
    rows_while,
)
from keyhouse.store.reads.cached_reads import CachedReads
from keyhouse.store.reads.cursor import decode_cursor, encode_cursor, invalid_cursor
from keyhouse.store.reads.raw_rows import RawRows
from keyhouse.store.reads.record_watch import check_watch_start
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRow, UnreadableRows
from keyhouse.store.service_rows import update_service_row
from keyhouse.store.store import Store
from keyhouse.store.transfer.backup import BackupResult, back_up, restore
from keyhouse.store.transfer.backup_file import BackupReader, read_backup
from keyhouse.store.transfer.digest import digest
from keyhouse.store.transfer.export_import import (
    ExportResult,
    ImportResult,
    PartialExport,
    export_rows,
    import_rows,
    is_complete_export,
    read_partial_export,
)
from keyhouse.store.transfer.move import (
    MoveMark,
    MoveProgress,
    MoveResult,
    SpaceDigest,
    move,
    unfinished_move,
)
from keyhouse.store.verify.finding import Finding
from keyhouse.store.verify.verify import verify
from keyhouse.store.writes.attempts import Attempts, GuardedSpace, NoAttempts
from keyhouse.store.writes.log_append import append_folded
from keyhouse.store.writes.row_buffer import RowChange
from keyhouse.store.writes.transaction import Transaction

__all__ = [
    "ANY",
    "FORGET_KEY",
    "MARK_SPACE",
    "Attempts",
    "BackupReader",
    "BackupResult",
    "BulkDelete",
    "BulkDeleteResult",
    "CachedReads",
    "Entry",
    "Event",
    "ExportResult",
    "Finding",
    "GuardedSpace",
    "ImportResult",
    "KeyMigrationResult",
    "MigrationResult",
    "MoveMark",
    "MoveProgress",
    "MoveResult",
    "NoAttempts",
    "OnUnreadable",
    "PartialExport",
    "PrefixConversion",
    "RawRows",
    "RecordPage",
    "Resumed",
    "RowChange",
    "SpaceDigest",
    "Store",
    "Transaction",
    "UnreadableRow",
    "UnreadableRows",
    "Unset",
    "UsagePage",
    "append_folded",
    "back_up",
    "build_indexes",
    "can_be_interrupted",
    "check_watch_start",
    "clear",
    "convert_prefix",
    "declared_indexes",
    "decode_cursor",
    "digest",
    "encode_cursor",
    "export_rows",
    "first_entries",
    "fold",
    "forget",
    "forget_job",
    "has_sealed",
    "import_rows",
    "index_progress",
    "invalid_cursor",
    "is_complete_export",
    "migrate",
    "migrate_keys",
    "missing_indexes",
    "move",
    "note_new_space",
    "open_migrated",
    "page_within",
    "prune",
    "read_backup",
    "read_partial_export",
    "record_keys",
    "reindex",
    "reseal",
    "restore",
    "resume_deletions",
    "resume_interrupted",
    "rows_while",
    "run_job",
    "stored_spaces",
    "sweep",
    "try_job",
    "unbuilt_indexes",
    "unfinished_move",
    "update_service_row",
    "verify",
    "version",
]
