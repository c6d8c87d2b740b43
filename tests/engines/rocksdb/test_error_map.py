"""Each error of the driver is mapped to an engine error whose sentence tells what to do."""

import pytest
from rocksdict import DbClosedError

from keyhouse.engines.rocksdb.error_map import translate, translate_sync_error
from keyhouse.errors import (
    ClosedError,
    EngineError,
    FullError,
    KeyhouseError,
    LockedError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
    UsageError,
)

MEANINGS: list[tuple[str, type[KeyhouseError], str]] = [
    (
        "IO error: No space left on device: While appending to file: rows/000021.sst",
        FullError,
        "make room",
    ),
    (
        "IO error: Disk quota exceeded: While appending to file: rows/000021.log",
        FullError,
        "make room",
    ),
    (
        "IO error: While lock file: rows/LOCK: Resource temporarily unavailable",
        LockedError,
        "close it there",
    ),
    (
        "IO error: lock hold by current process, acquire time 1: rows/LOCK: No locks available",
        LockedError,
        "close it",
    ),
    (
        "IO error: While open a file for lock: rows/LOCK: Permission denied",
        UnavailableError,
        "writable for this user",
    ),
    ("Permission denied (os error 13)", UnavailableError, "writable for this user"),
    ("IO error: Read-only file system: rows/LOCK", UnavailableError, "writable for this user"),
    ("No such file or directory (os error 2)", UnavailableError, "must exist"),
    ("Not a directory (os error 20)", UnavailableError, "must exist"),
    ("File exists (os error 17)", UnavailableError, "must exist"),
    ("Corruption: block checksum mismatch", UnreadableError, "backup"),
    (
        "IO error: While open a file: rows/000021.sst: Too many open files",
        UnavailableError,
        "limit",
    ),
    ("Result incomplete: Write stall", UnavailableError, "keep up"),
    (
        "IO error: While fdatasync: rows/000021.log: Input/output error",
        UnavailableError,
        "system log",
    ),
    ("Shutdown in progress", EngineError, "unexpected error"),
]


@pytest.mark.parametrize(("said", "meaning", "words"), MEANINGS)
def test_a_driver_error_is_mapped_to_an_engine_error(
    said: str, meaning: type[KeyhouseError], words: str
) -> None:
    cause = Exception(said)
    error = translate(cause, "rows")
    assert type(error) is meaning
    assert words in error.sentence
    assert error.fields == {"folder": "rows", "detail": said}
    assert error.__cause__ is cause


def test_a_folder_name_is_not_mistaken_for_an_error() -> None:
    folder = "data/Corruption: No space left on device"
    error = translate(
        Exception(f"IO error: While fdatasync: {folder}/000021.log: Input/output error"), folder
    )
    assert type(error) is UnavailableError


def test_a_closed_database_is_a_closed_error() -> None:
    assert type(translate(DbClosedError("DB instance already closed"), "rows")) is ClosedError


def test_an_engine_error_is_not_mapped_again() -> None:
    error = UsageError("No.")
    assert translate(error, "rows") is error


def test_a_failed_sync_is_an_unknown_outcome() -> None:
    error = translate_sync_error(Exception("IO error: While fdatasync"), "rows")
    assert type(error) is UnknownOutcomeError
    assert "same batch id" in error.sentence
