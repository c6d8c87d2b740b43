"""The store: where a schema meets an engine. Typed reads and writes, transactions, watch, sweep, verify, migrations, jobs,
and whole stores moved, exported and imported.

It names no engine: whatever keeps the contract of `keyhouse.engine` serves.
"""

from keyhouse.store.backup import BackedUp, back_up, restore
from keyhouse.store.backup_file import BackupReader, read_backup
from keyhouse.store.bulk_delete import BulkDelete, BulkDeleteResult
from keyhouse.store.digest import digest
from keyhouse.store.entry import ANY, Entry, Event, RecordPage, Unset, UsagePage
from keyhouse.store.export_import import (
    Begun,
    Exported,
    Imported,
    begun,
    export_rows,
    import_rows,
    is_whole,
)
from keyhouse.store.finding import Finding
from keyhouse.store.jobs import forget_job, run_job, try_job
from keyhouse.store.logs import append, append_in, fold, prune
from keyhouse.store.migrate import Migrated, migrate, open_store, reindex, version
from keyhouse.store.move import MARK_SPACE, Moved, Progress, SpaceMoved, move
from keyhouse.store.store import Store
from keyhouse.store.sweep import sweep
from keyhouse.store.transaction import Transaction
from keyhouse.store.verify import verify

__all__ = [
    "ANY",
    "MARK_SPACE",
    "BackedUp",
    "BackupReader",
    "Begun",
    "BulkDelete",
    "BulkDeleteResult",
    "Entry",
    "Event",
    "Exported",
    "Finding",
    "Imported",
    "Migrated",
    "Moved",
    "Progress",
    "RecordPage",
    "SpaceMoved",
    "Store",
    "Transaction",
    "Unset",
    "UsagePage",
    "append",
    "append_in",
    "back_up",
    "begun",
    "digest",
    "export_rows",
    "fold",
    "forget_job",
    "import_rows",
    "is_whole",
    "migrate",
    "move",
    "open_store",
    "prune",
    "read_backup",
    "reindex",
    "restore",
    "run_job",
    "sweep",
    "try_job",
    "verify",
    "version",
]
