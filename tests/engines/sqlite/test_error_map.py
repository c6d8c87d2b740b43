"""Each error of the driver is mapped to an engine error whose sentence tells what to do."""

import apsw
import pytest

from keyhouse.engines.sqlite.error_map import translate, translate_commit_error
from keyhouse.errors import (
    ClosedError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)

MEANINGS: list[tuple[type[Exception], type[KeyhouseError], str]] = [
    (apsw.ConnectionClosedError, ClosedError, "closed"),
    (apsw.CursorClosedError, ClosedError, "closed"),
    (apsw.FullError, FullError, "make room"),
    (apsw.BusyError, UnavailableError, "try again"),
    (apsw.LockedError, UnavailableError, "try again"),
    (apsw.ProtocolError, UnavailableError, "try again"),
    (apsw.CantOpenError, UnavailableError, "folder must exist"),
    (apsw.ReadOnlyError, UnavailableError, "writable for this user"),
    (apsw.PermissionsError, UnavailableError, "writable for this user"),
    (apsw.IOError, UnavailableError, "system log"),
    (apsw.NoMemError, UnavailableError, "memory"),
    (apsw.NotADBError, UnreadableError, "not a SQLite database"),
    (apsw.CorruptError, UnreadableError, "backup"),
    (apsw.MisuseError, EngineError, "unexpected error"),
    (ZeroDivisionError, EngineError, "unexpected error"),
]


@pytest.mark.parametrize(("raised", "meaning", "words"), MEANINGS)
def test_a_driver_error_is_mapped_to_an_engine_error(
    raised: type[Exception], meaning: type[KeyhouseError], words: str
) -> None:
    cause = raised("the text of SQLite")
    error = translate(cause, "rows.db")
    assert type(error) is meaning
    assert words in error.sentence
    assert error.fields == {"file": "rows.db", "detail": "the text of SQLite"}
    assert error.__cause__ is cause


def test_a_disk_failure_in_commit_is_an_unknown_outcome() -> None:
    error = translate_commit_error(apsw.IOError("no sync"), "rows.db")
    assert type(error) is UnknownOutcomeError
    assert "same batch id" in error.sentence


def test_a_full_disk_in_commit_writes_nothing() -> None:
    assert type(translate_commit_error(apsw.FullError("full"), "rows.db")) is FullError
