"""Maps the driver's errors to the engine's. The only place that chooses one by the other."""

from typing import NamedTuple

import apsw

from keyhouse.errors import (
    ClosedError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)


class _Rule(NamedTuple):
    raised: type[apsw.Error]
    error_type: type[KeyhouseError]
    message: str


_RULES = (
    _Rule(apsw.ConnectionClosedError, ClosedError, "The engine is closed."),
    _Rule(apsw.CursorClosedError, ClosedError, "The engine is closed."),
    _Rule(apsw.FullError, FullError, "The disk is full; make room, then try again."),
    _Rule(apsw.BusyError, UnavailableError, "Another process kept the database locked; try again."),
    _Rule(
        apsw.LockedError, UnavailableError, "Another process kept the database locked; try again."
    ),
    _Rule(
        apsw.ProtocolError, UnavailableError, "Other processes kept the database locked; try again."
    ),
    _Rule(
        apsw.CantOpenError,
        UnavailableError,
        "The database file cannot be opened; its folder must exist and be writable for this user.",
    ),
    _Rule(
        apsw.ReadOnlyError,
        UnavailableError,
        "The database is read-only; the file and its folder must be writable for this user.",
    ),
    _Rule(
        apsw.PermissionsError,
        UnavailableError,
        "The database is read-only; the file and its folder must be writable for this user.",
    ),
    _Rule(
        apsw.IOError,
        UnavailableError,
        "The disk failed to read or write; check the system log.",
    ),
    _Rule(
        apsw.NoMemError,
        UnavailableError,
        "The machine has no memory left; free some, then try again.",
    ),
    _Rule(
        apsw.NotADBError,
        UnreadableError,
        "The file is not a SQLite database; name another one, or restore this one from a backup.",
    ),
    _Rule(apsw.CorruptError, UnreadableError, "The database is damaged; restore it from a backup."),
)


def translate(error: Exception, path: str) -> KeyhouseError:
    """Return the error to raise: what happened, what to do, and to which file."""
    for rule in _RULES:
        if isinstance(error, rule.raised):
            return rule.error_type(rule.message, file=path, detail=str(error)).caused_by(error)
    sentence = "The engine failed with an unexpected error."
    return EngineError(sentence, file=path, detail=str(error)).caused_by(error)


def translate_commit_error(error: Exception, path: str) -> KeyhouseError:
    """Map an error of COMMIT. If the disk failed in it, the rows may reappear after a power cut."""
    if isinstance(error, apsw.IOError):
        sentence = (
            "The disk failed while the commit was being written; repeat it with the same batch id."
        )
        return UnknownOutcomeError(sentence, file=path, detail=str(error)).caused_by(error)
    return translate(error, path)
