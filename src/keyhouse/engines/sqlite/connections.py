"""Opens the file: its settings, its format, and the program it belongs to. Knows no rows."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import apsw
from apsw import Connection

from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.sqlite import APPLICATION_ID, FORMAT
from keyhouse.engines.sql.version import check_version
from keyhouse.engines.sqlite.error_map import translate
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.errors import NewerError, UnavailableError, UsageError

LOCK_WAIT_SECONDS: Final = 10.0
"""The longest wait for the lock of another process; then UnavailableError."""

LOCK_RETRY_SECONDS: Final = 0.000_5
"""Between two attempts to lock: SQLite's own backoff grows to 100 ms, and starves beside a busy
process."""

READ_WAIT_MILLISECONDS: Final = 1_000
"""A reader waits only while another process recovers the file after a crash: rare, and short."""

CACHE_KIBIBYTES: Final = 6_144
"""Page cache of each connection."""

CHECKPOINT_PAGES: Final = 4_000
"""Pages in the WAL at which it is checkpointed. More makes checkpoints rarer and longer."""

WAL_BYTES_KEPT: Final = 64 * 1_024 * 1_024
"""A WAL that a burst has made larger is truncated to this size."""

_DEFAULT_TABLES = frozenset({Layout().rows, Layout().version})
"""Tables of a file that was written without a layout."""

WRITER_SETTINGS = f"""
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON;
    PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
    PRAGMA journal_size_limit = {WAL_BYTES_KEPT};
    PRAGMA cache_size = -{CACHE_KIBIBYTES};
    PRAGMA temp_store = MEMORY;
    PRAGMA foreign_keys = OFF;
    PRAGMA trusted_schema = OFF;
"""

_READER_SETTINGS = f"""
    PRAGMA synchronous = FULL;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA query_only = ON;
    PRAGMA cache_size = -{CACHE_KIBIBYTES};
    PRAGMA temp_store = MEMORY;
    PRAGMA trusted_schema = OFF;
"""

Answer = TypeVar("Answer")


def open_writer(path: str, sql: Statements, *, create: bool = True) -> Connection:
    """Open the one connection that writes and checkpoints. The connection itself never waits.

    Creates missing tables unless `create` is false.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    return _opened(
        path,
        flags,
        lambda connection: until_available(lambda: _prepare(connection, path, sql, create)),
    )


def open_reader(path: str) -> Connection:
    """Open a connection that only reads, of a file that a writer has opened."""

    def set_up(connection: Connection) -> None:
        connection.set_busy_timeout(READ_WAIT_MILLISECONDS)
        # Some of the statements return a row, and the next one waits until it is read.
        connection.execute(_READER_SETTINGS).fetchall()

    return _opened(path, apsw.SQLITE_OPEN_READWRITE, set_up)


def _opened(path: str, flags: int, set_up: Callable[[Connection], None]) -> Connection:
    """Open and set up a connection; close it on failure, as it would hold the file's locks."""
    if flags & apsw.SQLITE_OPEN_CREATE and path != ":memory:":  # for SQLite, not a file
        _create_private(path)
    try:
        connection = Connection(path, flags=flags)
        try:
            set_up(connection)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise translate(error, path) from error
    return connection


def _create_private(path: str) -> None:
    """Create a missing file for its owner only. SQLite gives the WAL the mode of its file.

    Errors are left to SQLite, which reports them.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def until_available(call: Callable[[], Answer]) -> Answer:
    """Retry while another process holds the lock, up to `LOCK_WAIT_SECONDS`. Blocks the thread."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            return call()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_RETRY_SECONDS)


def _prepare(connection: Connection, path: str, sql: Statements, create: bool) -> None:
    """Check the file and create missing tables. Repeatable: an attempt that met a lock starts over.

    If the tables exist, nothing is written and no writer is waited for: a command that only reads
    must not fail because the sync of another process is slow.
    """
    if connection.readonly("main"):  # else only the first commit would fail
        raise apsw.ReadOnlyError("it was opened for reading only")
    with transaction(connection, "BEGIN"):
        check_owner(connection, path)  # before anything in it changes
        exist = _tables_exist(connection, path, sql)
        if not exist:
            _check_layout(connection, path, sql, create)
    mode = connection.pragma("journal_mode", "WAL")
    if mode != "wal":
        raise UnavailableError(
            "SQLite cannot use a write-ahead log here; name a file on a local disk.",
            file=path,
            mode=mode,
        )
    connection.execute(WRITER_SETTINGS).fetchall()
    if exist:
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        check_owner(connection, path)
        if not _tables_exist(connection, path, sql):
            _check_layout(connection, path, sql, create)
            for statement in sql.tables:
                connection.execute(statement)


def _check_layout(connection: Connection, path: str, sql: Statements, create: bool) -> None:
    """Raise if the rows of the file are in the tables of another layout: then this one would look
    like an empty store. Several named layouts in one file are several stores."""
    tables = (
        "SELECT name FROM sqlite_schema"
        " WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    )
    tables_present = [name for (name,) in connection.execute(tables)]
    if not sql.is_default and set(tables_present) >= _DEFAULT_TABLES:
        raise UsageError(
            "The file was written without a layout, as a program does it; a service has one. Copy"
            " its rows to the data folder of a service: `keyhouse move SYSTEM sqlite:FILE"
            " keyhouse-data`. For other commands, leave ?layout=NAME out of the URL.",
            file=path,
            found=tables_present,
        )
    if not create or (sql.is_default and tables_present):
        raise UsageError(
            "The file has no such tables. Those of a service have the name of its system or schema:"
            " add it to the URL as ?layout=NAME.",
            file=path,
            found=tables_present,
        )


def _tables_exist(connection: Connection, path: str, sql: Statements) -> bool:
    """Return True if the layout's tables exist; raise if their version is not this code's."""
    rows, version = connection.execute(sql.present).get
    if rows:
        check_version(connection.execute(sql.version).get if version else None, file=path)
    return bool(rows)


@contextmanager
def transaction(connection: Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_owner(connection: Connection, path: str) -> None:
    """Raise if the file has a newer format than this code, or belongs to another program.

    Call it in a transaction: else another process could create the file between two queries.
    """
    if connection.pragma("encoding") != "UTF-8":
        raise UsageError(
            "The database's encoding is not UTF-8; keys would be in the wrong order.", file=path
        )
    owner: int = connection.pragma("application_id")
    version: int = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if owner == 0 and version == 0 and tables == 0:
        return
    if owner != APPLICATION_ID:
        raise UsageError("The database belongs to another program; name another file.", file=path)
    if version > FORMAT:
        raise NewerError(
            "The database was written by a newer Keyhouse; use that one.",
            file=path,
            format=version,
            known=FORMAT,
        )
