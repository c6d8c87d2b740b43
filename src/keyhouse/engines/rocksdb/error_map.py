"""Maps the driver's errors to the engine's. The only place that chooses one by the other.

`rocksdict` raises a bare `Exception` for everything, so only its text distinguishes errors:
RocksDB's status, which starts with its kind ("IO error: ", "Corruption: "), or the system's error
for a folder.
"""

from rocksdict import DbClosedError

from keyhouse.engines.error_rules import Rules, translate_by
from keyhouse.errors import (
    ClosedError,
    FullError,
    KeyhouseError,
    LockedError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)

CLOSED = "The engine is closed."
FULL = "The disk is full; make room, then try again."
FOLDER = (
    "The database's folder cannot be used; its parent folder must exist, and both must be writable"
    " for this user."
)
LOCKED = (
    "The database is already open, here or in another process, and RocksDB serves one at a time:"
    " close it there, or move to an engine that several processes can share."
)
STALLED = "RocksDB could not keep up with the writes and accepted none for a minute; try again."


_RULES: Rules[str] = (
    (FullError, {"No space left on device": FULL, "Disk quota exceeded": FULL}),
    (
        LockedError,
        {"LOCK: Resource temporarily unavailable": LOCKED, "lock hold by current process": LOCKED},
    ),
    (
        UnavailableError,
        {
            "Permission denied": FOLDER,
            "Read-only file system": FOLDER,
            "No such file or directory": FOLDER,
            "Not a directory": FOLDER,
            "File exists": FOLDER,
        },
    ),
    (UnreadableError, {"Corruption": "The database is damaged; restore it from a backup."}),
    (
        UnavailableError,
        {
            "Too many open files": "The process has too many files open; raise its limit.",
            "Write stall": STALLED,
            "IO error": "The disk failed to read or write; check the system log.",
        },
    ),
)


def translate(error: Exception, folder: str) -> KeyhouseError:
    """Return the error to raise: what happened, what to do, and to which folder."""
    if isinstance(error, KeyhouseError):
        return error
    if isinstance(error, DbClosedError):
        return ClosedError(CLOSED, folder=folder).caused_by(error)
    text = str(error).replace(folder, "")  # a folder can have any name
    return translate_by(_RULES, lambda part: part in text, error, folder=folder)


def translate_sync_error(error: Exception, folder: str) -> KeyhouseError:
    """Map an error of the sync that ends a commit: the rows may be in the log or not."""
    sentence = (
        "The disk failed while the commit was being made durable; repeat it with the same batch id."
    )
    return UnknownOutcomeError(sentence, folder=folder, detail=str(error)).caused_by(error)


def is_absent(error: Exception) -> bool:
    """Return True if the error only means that a snapshot has no such key."""
    return str(error) == "key not found"


def is_stall(error: Exception) -> bool:
    """Return True if nothing was written because RocksDB must flush or compact first."""
    return "Write stall" in str(error)
