"""Each error of the driver becomes one of ours, with a sentence that says what to do."""

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
def test_an_error_of_the_driver_has_its_meaning(
    raised: type[Exception], meaning: type[KeyhouseError], words: str
) -> None:
    cause = raised("what SQLite said")
    error = translate(cause, "rows.db")
    assert type(error) is meaning
    assert words in error.sentence
    assert error.fields == {"file": "rows.db", "detail": "what SQLite said"}
    assert error.__cause__ is cause


def test_a_disk_that_fails_in_commit_makes_the_outcome_unknown() -> None:
    error = translate_commit_error(apsw.IOError("no sync"), "rows.db")
    assert type(error) is UnknownOutcomeError
    assert "same batch id" in error.sentence


def test_a_full_disk_in_commit_has_written_nothing() -> None:
    assert type(translate_commit_error(apsw.FullError("full"), "rows.db")) is FullError
