"""Opening the file: its settings, its format, and whose it is. Nothing here knows a row."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import apsw
from apsw import Connection

from keyhouse.engines.sql.sqlite import APPLICATION_ID
from keyhouse.engines.sql.version import check_version
from keyhouse.engines.sqlite.error_map import translate
from keyhouse.engines.sqlite.sql import FORMAT, Statements
from keyhouse.errors import NewerError, UnavailableError, UsageError

LOCK_WAIT_SECONDS: Final = 10.0
"""How long the lock of another process is waited for, before the caller is told."""

LOCK_RETRY_SECONDS: Final = 0.000_5
"""Between two tries for a lock: SQLite's own waiting grows to 100 ms, and starves beside a busy process."""

READ_WAIT_MILLISECONDS: Final = 1_000
"""A reader waits only for another process that recovers the file after a crash: rare, and short."""

CACHE_KIBIBYTES: Final = 6_144
"""Pages kept in memory, per connection."""

CHECKPOINT_PAGES: Final = 4_000
"""The WAL goes into the file when it holds so many pages; more makes it rarer, and each one longer."""

WAL_BYTES_KEPT: Final = 64 * 1_024 * 1_024
"""A WAL that a burst has made larger is cut back to this."""

_WRITER_SETTINGS = f"""
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
    """The one connection that writes and checkpoints; makes the tables where they are not, unless `create` is false. Never
    waits on its own."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    return _opened(
        path,
        flags,
        lambda connection: until_available(lambda: _prepare(connection, path, sql, create)),
    )


def open_reader(path: str) -> Connection:
    """A connection that only reads, of a file that a writer has opened."""

    def set_up(connection: Connection) -> None:
        connection.set_busy_timeout(READ_WAIT_MILLISECONDS)
        connection.execute(
            _READER_SETTINGS
        ).fetchall()  # some of them answer, and the next waits until that is read

    return _opened(path, apsw.SQLITE_OPEN_READWRITE, set_up)


def _opened(path: str, flags: int, set_up: Callable[[Connection], None]) -> Connection:
    """A connection that is set up. One that can't be is closed: it would hold the file, and the locks on it."""
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


def until_available(call: Callable[[], Answer]) -> Answer:
    """Call again while another process holds the lock, up to `LOCK_WAIT_SECONDS`. Blocks: not for the event loop."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            return call()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_RETRY_SECONDS)


def _prepare(connection: Connection, path: str, sql: Statements, create: bool) -> None:
    """Repeatable: a try that met a lock starts over. Where the tables are there, nothing is written, and no writer is waited
    for: a command that only reads must not fail because somebody's sync takes long."""
    if connection.readonly(
        "main"
    ):  # SQLite opens it all the same, and the first commit would be refused
        raise apsw.ReadOnlyError("it was opened for reading only")
    with transaction(connection, "BEGIN"):
        check_owner(connection, path)  # before anything is changed in it
        there = _are_there(connection, path, sql)
        if not there and not create:
            tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
            raise UsageError(
                "The file has no such tables; if they have the names of a layout, say it in the URL: ?layout=NAME",
                file=path,
                there=[name for (name,) in connection.execute(tables)],
            )
    mode = connection.pragma("journal_mode", "WAL")
    if mode != "wal":
        raise UnavailableError(
            "SQLite can't keep a write-ahead log here; name a file on a local disk.",
            file=path,
            mode=mode,
        )
    connection.execute(_WRITER_SETTINGS).fetchall()
    if there:
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        check_owner(connection, path)
        if not _are_there(connection, path, sql):
            for statement in sql.tables:
                connection.execute(statement)


def _are_there(connection: Connection, path: str, sql: Statements) -> bool:
    """Whether there are tables of this layout. Those of another version than this code's are refused."""
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
    """A file whose format is newer than this code, or that is another program's, is refused.

    In a transaction: else another process could be making the file between two of these questions.
    """
    if connection.pragma("encoding") != "UTF-8":
        raise UsageError(
            "The database's text is not UTF-8; keys would order wrongly in it.", file=path
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
