"""Health checks of a SQLite file, on a separate read-only connection."""

import os
from typing import Final

import apsw

from keyhouse.engines.health import HealthCheck, format_size, free_space, measured
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
        return [*_settings(connection, path), _pages(connection, path), free_space(path)]
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        connection.close()


def _settings(connection: apsw.Connection, path: str) -> list[HealthCheck]:
    version, mode = apsw.sqlite_lib_version(), str(connection.pragma("journal_mode"))
    log = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
    return [
        measured(
            "SQLite",
            f"{version}, through apsw {apsw.apsw_version()}",
            "This version can corrupt a write-ahead log: install a newer apsw.",
            bad=tuple(map(int, version.split("."))) < _VERSION_MIN,
        ),
        measured("durability", "WAL, synchronous=FULL: each commit is on disk when it returns")
        if mode == "wal"
        else measured(
            "journal mode",
            mode,
            "Another program has changed it: open the file once with Keyhouse.",
            bad=True,
        ),
        measured(
            "WAL",
            format_size(log),
            "A reader that stays open keeps it from shrinking: look for a shell or a backup.",
            warn=log > 4 * WAL_BYTES_KEPT,
        ),
    ]


def _pages(connection: apsw.Connection, path: str) -> HealthCheck:
    size = os.path.getsize(path)
    if size > CHECKED_BYTES_MAX:
        return measured("file", f"{format_size(size)}, too large to check here")
    report = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    return measured(
        "file",
        f"{format_size(size)}, every page intact" if report == ["ok"] else "; ".join(report),
        "The file is damaged: restore the backup, then check the disk.",
        bad=report != ["ok"],
    )
