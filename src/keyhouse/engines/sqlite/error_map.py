"""Maps the driver's errors to the engine's. The only place that chooses one by the other."""

import apsw

from keyhouse.engines.error_rules import Rules, translate_by
from keyhouse.errors import (
    ClosedError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)

_CLOSED = "The engine is closed."
_LOCKED = "Another process kept the database locked; try again."
_FOLDER = "The database file cannot be opened; its folder must exist and be writable for this user."
_READ_ONLY = "The database is read-only; the file and its folder must be writable for this user."
_NO_DATABASE = (
    "The file is not a SQLite database; name another one, or restore this one from a backup."
)

_RULES: Rules[type[Exception]] = (
    (ClosedError, {apsw.ConnectionClosedError: _CLOSED, apsw.CursorClosedError: _CLOSED}),
    (FullError, {apsw.FullError: "The disk is full; make room, then try again."}),
    (
        UnavailableError,
        {
            apsw.BusyError: _LOCKED,
            apsw.LockedError: _LOCKED,
            apsw.ProtocolError: "Other processes kept the database locked; try again.",
            apsw.CantOpenError: _FOLDER,
            apsw.ReadOnlyError: _READ_ONLY,
            apsw.PermissionsError: _READ_ONLY,
            apsw.IOError: "The disk failed to read or write; check the system log.",
            apsw.NoMemError: "The machine has no memory left; free some, then try again.",
        },
    ),
    (
        UnreadableError,
        {
            apsw.NotADBError: _NO_DATABASE,
            apsw.CorruptError: "The database is damaged; restore it from a backup.",
        },
    ),
)


def translate(error: Exception, path: str) -> KeyhouseError:
    """Return the error to raise: what happened, what to do, and to which file."""
    return translate_by(_RULES, lambda raised: isinstance(error, raised), error, file=path)


def translate_commit_error(error: Exception, path: str) -> KeyhouseError:
    """Map an error of COMMIT. If the disk failed in it, the rows may reappear after a power cut."""
    if isinstance(error, apsw.IOError):
        sentence = (
            "The disk failed while the commit was being written; repeat it with the same batch id."
        )
        return UnknownOutcomeError(sentence, file=path, detail=str(error)).caused_by(error)
    return translate(error, path)
