"""Keyhouse for programs without an event loop: scripts, Flask, Django, notebooks.

The names are those of `keyhouse`; each call waits for its result. Declarations are the same
objects, so a program may use both.
"""

from keyhouse.sync.functions import fold, migrate, prune, run_job, sweep, verify
from keyhouse.sync.store import Engine, RemoteStore, Store, Transaction, open_engine, open_store

__all__ = [
    "Engine",
    "RemoteStore",
    "Store",
    "Transaction",
    "fold",
    "migrate",
    "open_engine",
    "open_store",
    "prune",
    "run_job",
    "sweep",
    "verify",
]
