"""Maps the driver's errors to the engine's. The only place that chooses one by the other.

`rocksdict` raises a bare `Exception` for everything, so only its text distinguishes errors:
RocksDB's status, which starts with its kind ("IO error: ", "Corruption: "), or the system's error
for a folder.
"""

from typing import NamedTuple

from rocksdict import DbClosedError

from keyhouse.errors import (
    ClosedError,
    EngineError,
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


class _Rule(NamedTuple):
    text: str
    error_type: type[KeyhouseError]
    message: str


_RULES = (
    _Rule("No space left on device", FullError, FULL),
    _Rule("Disk quota exceeded", FullError, FULL),
    _Rule("LOCK: Resource temporarily unavailable", LockedError, LOCKED),
    _Rule("lock hold by current process", LockedError, LOCKED),
    _Rule("Permission denied", UnavailableError, FOLDER),
    _Rule("Read-only file system", UnavailableError, FOLDER),
    _Rule("No such file or directory", UnavailableError, FOLDER),
    _Rule("Not a directory", UnavailableError, FOLDER),
    _Rule("File exists", UnavailableError, FOLDER),
    _Rule("Corruption", UnreadableError, "The database is damaged; restore it from a backup."),
    _Rule(
        "Too many open files",
        UnavailableError,
        "The process has too many files open; raise its limit.",
    ),
    _Rule("Write stall", UnavailableError, STALLED),
    _Rule(
        "IO error",
        UnavailableError,
        "The disk failed to read or write; check the system log.",
    ),
)


def translate(error: Exception, folder: str) -> KeyhouseError:
    """Return the error to raise: what happened, what to do, and to which folder."""
    if isinstance(error, KeyhouseError):
        return error
    if isinstance(error, DbClosedError):
        return ClosedError(CLOSED, folder=folder).caused_by(error)
    detail = str(error)
    text = detail.replace(folder, "")  # a folder can have any name
    for rule in _RULES:
        if rule.text in text:
            return rule.error_type(rule.message, folder=folder, detail=detail).caused_by(error)
    sentence = "The engine failed with an unexpected error."
    return EngineError(sentence, folder=folder, detail=detail).caused_by(error)


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
