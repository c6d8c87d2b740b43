"""What the driver raises, as what the engine raises. The only place that chooses an error by the driver's.

`rocksdict` raises a bare `Exception` for everything, so there is nothing to go by but its text: RocksDB's status, which
starts with its kind ("IO error: ", "Corruption: "), or what the operating system says of a folder.
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
FOLDER = "The database's folder can't be used; the folder around it must exist, and this user must be able to write in both."
LOCKED = (
    "The database is open already, here or in another process, and RocksDB serves one at a time: close it there, or move to"
    " an engine that several processes can share."
)
STALLED = "RocksDB could not keep up with the writes, and took no more for a minute; try again."


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
        "The disk failed to read or write; look into the system's log.",
    ),
)


def translate(error: Exception, folder: str) -> KeyhouseError:
    """The error to raise for the driver's: what happened, what to do, and to which folder."""
    if isinstance(error, KeyhouseError):
        return error
    if isinstance(error, DbClosedError):
        return ClosedError(CLOSED, folder=folder).caused_by(error)
    detail = str(error)
    said = detail.replace(folder, "")  # a folder may be called anything
    for rule in _RULES:
        if rule.text in said:
            return rule.error_type(rule.message, folder=folder, detail=detail).caused_by(error)
    sentence = "The engine failed in a way that it does not know."
    return EngineError(sentence, folder=folder, detail=detail).caused_by(error)


def translate_sync_error(error: Exception, folder: str) -> KeyhouseError:
    """For an error of the sync that ends a commit: the rows are in the log, and may be found there or not."""
    sentence = (
        "The disk failed while the commit was being made durable; repeat it with the same batch id."
    )
    return UnknownOutcomeError(sentence, folder=folder, detail=str(error)).caused_by(error)


def is_absent(error: Exception) -> bool:
    """Whether a snapshot says no more than that it has no such key."""
    return str(error) == "key not found"


def is_stall(error: Exception) -> bool:
    """Whether the write was refused, untouched, because flushing or compacting has to come first."""
    return "Write stall" in str(error)
