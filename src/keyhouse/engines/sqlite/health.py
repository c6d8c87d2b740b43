"""Health checks of a SQLite file, on a separate read-only connection."""

import os
from collections.abc import Iterator
from typing import Final

import apsw

from keyhouse.engines.health import HealthCheck, format_size, free_space
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.sqlite.connections import WAL_BYTES_KEPT, open_reader
from keyhouse.engines.sqlite.error_map import translate

CHECKED_BYTES_MAX: Final = 256 * 1_024 * 1_024
"""A larger file is not checked page by page: that takes minutes."""

_VERSION_MIN: Final = (3, 51, 3)
"""Older versions can corrupt a WAL when they reset it."""


async def check_health(url: str) -> list[HealthCheck]:
    path = sqlite_file(split_layout(url)[0])
    connection = open_reader(path)
    try:
        return [
            *_library(),
            *_settings(connection),
            *_wal(path),
            *_pages(connection, path),
            *free_space(path),
        ]
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        connection.close()


def _library() -> Iterator[HealthCheck]:
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < _VERSION_MIN:
        yield HealthCheck(
            "SQLite",
            version,
            "bad",
            "This version can corrupt a write-ahead log: install a newer apsw.",
        )
    else:
        yield HealthCheck("SQLite", f"{version}, through apsw {apsw.apsw_version()}")


def _settings(connection: apsw.Connection) -> Iterator[HealthCheck]:
    mode = connection.pragma("journal_mode")
    if mode != "wal":
        yield HealthCheck(
            "journal mode",
            str(mode),
            "bad",
            "Another program has changed it: open the file once with Keyhouse.",
        )
    else:
        yield HealthCheck(
            "durability", "WAL, synchronous=FULL: each commit is on disk when it returns"
        )


def _wal(path: str) -> Iterator[HealthCheck]:
    size = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
    value = format_size(size)
    if size > 4 * WAL_BYTES_KEPT:
        yield HealthCheck(
            "WAL",
            value,
            "warn",
            "A reader that stays open keeps it from shrinking: look for a shell or a backup.",
        )
    else:
        yield HealthCheck("WAL", value)


def _pages(connection: apsw.Connection, path: str) -> Iterator[HealthCheck]:
    size = os.path.getsize(path)
    if size > CHECKED_BYTES_MAX:
        yield HealthCheck("file", f"{format_size(size)}, too large to check here")
        return
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found == ["ok"]:
        yield HealthCheck("file", f"{format_size(size)}, every page intact")
    else:
        yield HealthCheck(
            "file",
            "; ".join(map(str, found)),
            "bad",
            "The file is damaged: restore the backup, then check the disk.",
        )
