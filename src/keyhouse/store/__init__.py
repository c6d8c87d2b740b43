"""The store: where a schema meets an engine. Typed reads and writes, transactions, watch, sweep, verify, migrations, jobs.

It names no engine: whatever keeps the contract of `keyhouse.engine` serves.
"""

from keyhouse.store.entry import Entry, Event, PageOf
from keyhouse.store.jobs import run_job, try_job
from keyhouse.store.logs import append, append_in, fold, prune
from keyhouse.store.migrate import Migrated, migrate, open_store, reindex, version
from keyhouse.store.store import Store
from keyhouse.store.sweep import sweep
from keyhouse.store.transaction import Transaction
from keyhouse.store.verify import Finding, verify

__all__ = [
    "Entry",
    "Event",
    "Finding",
    "Migrated",
    "PageOf",
    "Store",
    "Transaction",
    "append",
    "append_in",
    "fold",
    "migrate",
    "open_store",
    "prune",
    "reindex",
    "run_job",
    "sweep",
    "try_job",
    "verify",
    "version",
]
