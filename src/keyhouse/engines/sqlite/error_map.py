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


class _Fault(NamedTuple):
    raised: type[apsw.Error]
    meaning: type[KeyhouseError]
    sentence: str


_FAULTS = (
    _Fault(apsw.ConnectionClosedError, ClosedError, "The engine is closed."),
    _Fault(apsw.CursorClosedError, ClosedError, "The engine is closed."),
    _Fault(apsw.FullError, FullError, "The disk is full; make room, then try again."),
    _Fault(
        apsw.BusyError, UnavailableError, "Another process kept the database locked; try again."
    ),
    _Fault(
        apsw.LockedError, UnavailableError, "Another process kept the database locked; try again."
    ),
    _Fault(
        apsw.ProtocolError, UnavailableError, "Other processes kept the database locked; try again."
    ),
    _Fault(
        apsw.CantOpenError,
        UnavailableError,
        "The database file can't be opened; its folder must exist, and this user must be able to write in it.",
    ),
    _Fault(
        apsw.ReadOnlyError,
        UnavailableError,
        "The database can't be written; this user must be able to write the file and its folder.",
    ),
    _Fault(
        apsw.PermissionsError,
        UnavailableError,
        "The database can't be written; this user must be able to write the file and its folder.",
    ),
    _Fault(
        apsw.IOError,
        UnavailableError,
        "The disk failed to read or write; look into the system's log.",
    ),
    _Fault(
        apsw.NoMemError,
        UnavailableError,
        "The machine has no memory left; free some, then try again.",
    ),
    _Fault(
        apsw.NotADBError,
        UnreadableError,
        "The file is not a SQLite database; name another one, or restore this one from a backup.",
    ),
    _Fault(
        apsw.CorruptError, UnreadableError, "The database is damaged; restore it from a backup."
    ),
)


def translated(error: Exception, path: str) -> KeyhouseError:
    """The error to raise for the driver's: what happened, what to do, and to which file."""
    for fault in _FAULTS:
        if isinstance(error, fault.raised):
            return fault.meaning(fault.sentence, file=path, detail=str(error)).caused_by(error)
    sentence = "The engine failed in a way that it does not know."
    return EngineError(sentence, file=path, detail=str(error)).caused_by(error)


def translated_commit(error: Exception, path: str) -> KeyhouseError:
    """For an error of COMMIT itself. When the disk fails in it, the rows may be found written after a power cut."""
    if isinstance(error, apsw.IOError):
        sentence = (
            "The disk failed while the commit was being written; repeat it with the same batch id."
        )
        return UnknownOutcomeError(sentence, file=path, detail=str(error)).caused_by(error)
    return translated(error, path)
