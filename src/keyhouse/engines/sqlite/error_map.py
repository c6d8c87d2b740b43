"""What the driver raises, as what the engine raises. The only place that chooses an error by the driver's."""

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
        "The database file can't be opened; its folder must exist, and this user must be able to write in it.",
    ),
    _Rule(
        apsw.ReadOnlyError,
        UnavailableError,
        "The database can't be written; this user must be able to write the file and its folder.",
    ),
    _Rule(
        apsw.PermissionsError,
        UnavailableError,
        "The database can't be written; this user must be able to write the file and its folder.",
    ),
    _Rule(
        apsw.IOError,
        UnavailableError,
        "The disk failed to read or write; look into the system's log.",
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
    """The error to raise for the driver's: what happened, what to do, and to which file."""
    for rule in _RULES:
        if isinstance(error, rule.raised):
            return rule.error_type(rule.message, file=path, detail=str(error)).caused_by(error)
    sentence = "The engine failed in a way that it does not know."
    return EngineError(sentence, file=path, detail=str(error)).caused_by(error)


def translate_commit_error(error: Exception, path: str) -> KeyhouseError:
    """For an error of COMMIT itself. When the disk fails in it, the rows may be found written after a power cut."""
    if isinstance(error, apsw.IOError):
        sentence = (
            "The disk failed while the commit was being written; repeat it with the same batch id."
        )
        return UnknownOutcomeError(sentence, file=path, detail=str(error)).caused_by(error)
    return translate(error, path)
