"""The file of a catalog: its tables, their migrations, and how a new one replaces the old.

A catalog is never changed in place. A new one is built beside it as `catalog-<snapshot>.sqlite3`,
checked, synced and renamed over it, so a reader has the old file or the new one, and a kill at any
point leaves the old one. Readers that have the old file open keep it until they close it.

    version   tables
    -------   -------------------------------------------------------------------------------------
    1         those of the document: catalog_item, catalog_category, catalog_item_category
    2         ours as well: catalog_meta (the snapshot), catalog_entry (order and folded titles),
              catalog_facet (items per category), catalog_words (FTS5 over folded words)
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final, Self

import apsw
import msgspec

from keyhouse.errors import UnreadableError
from keyhouse.search import fold, words
from keyhouse_playlist.catalog.tables.item import CatalogItem, SnapshotInfo

__all__ = [
    "CATALOG_VERSION",
    "CatalogWriter",
    "build_catalog",
    "downgrade",
    "publish_catalog",
    "remove_leftovers",
    "upgrade",
    "upgrade_file",
]

CATALOG_VERSION: Final = 2

BETWEEN_TEXTS: Final = " \ue000 "
"""A word that no query has: a phrase does not match across two categories."""

LEFTOVER_SECONDS: Final = 3_600
"""Age from which a file that was never published is one of a process that was killed."""

_TABLES: Final = """
CREATE TABLE catalog_item(
    video_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    categories_json TEXT NOT NULL,
    manifest_url TEXT NOT NULL,
    duration_seconds INTEGER NULL,
    thumbnail_url TEXT NULL,
    snapshot_id TEXT NOT NULL,
    created_at TEXT NOT NULL);
CREATE INDEX idx_catalog_title ON catalog_item(title);
CREATE INDEX idx_catalog_snapshot ON catalog_item(snapshot_id);
CREATE TABLE catalog_category(category TEXT PRIMARY KEY);
CREATE TABLE catalog_item_category(
    video_id TEXT REFERENCES catalog_item(video_id),
    category TEXT REFERENCES catalog_category(category),
    PRIMARY KEY (video_id, category));
"""
"""The document's tables and indexes, exactly."""

_OWN_TABLES: Final = """
CREATE TABLE catalog_meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE catalog_entry(
    id INTEGER PRIMARY KEY, video_id TEXT NOT NULL UNIQUE, sort TEXT NOT NULL);
CREATE INDEX catalog_entry_sort ON catalog_entry(sort, id);
CREATE INDEX catalog_item_manifest ON catalog_item(manifest_url);
CREATE INDEX catalog_category_item ON catalog_item_category(category, video_id);
CREATE TABLE catalog_facet(category TEXT PRIMARY KEY, items INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE catalog_words USING fts5(
    title, categories, content='', tokenize='ascii', prefix='1 2 3');
"""

_DROP_OWN_TABLES: Final = """
DROP TABLE catalog_words;
DROP TABLE catalog_facet;
DROP INDEX catalog_category_item;
DROP INDEX catalog_item_manifest;
DROP TABLE catalog_entry;
DROP TABLE catalog_meta;
"""

_DROP_TABLES: Final = """
DROP TABLE catalog_item_category;
DROP TABLE catalog_category;
DROP TABLE catalog_item;
"""

_INSERT_ITEM: Final = "INSERT INTO catalog_item VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_encode = msgspec.json.Encoder().encode


def version_of(connection: apsw.Connection) -> int:
    """Return the version of a catalog's tables; 0 if there are none. A file of another program has
    the document's tables and no version."""
    version = int(connection.pragma("user_version"))
    if version == 0 and connection.table_exists("main", "catalog_item"):
        return 1
    return version


def upgrade(connection: apsw.Connection, to: int = CATALOG_VERSION) -> None:
    """Bring the tables to a version, with what they hold, in one transaction."""
    with connection:
        for version in range(version_of(connection) + 1, to + 1):
            if version == 1:
                connection.execute(_TABLES)
            elif version == 2:
                connection.execute(_OWN_TABLES)
                _index_all(connection)
        connection.pragma("user_version", to)


def downgrade(connection: apsw.Connection, to: int = 0) -> None:
    """Take the tables back to an earlier version, in one transaction; 0: no tables."""
    with connection:
        for version in range(version_of(connection), to, -1):
            connection.execute(_DROP_OWN_TABLES if version == 2 else _DROP_TABLES)
        connection.pragma("user_version", to)


def upgrade_file(path: Path) -> None:
    """Upgrade a catalog of an earlier version or another program: beside it, then by renaming."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        version = version_of(connection)
        if version in (0, CATALOG_VERSION):
            return
        draft = path.with_name(f"{path.stem}-upgrade-{os.getpid()}{path.suffix}")
        remove_file(draft)
        try:
            connection.execute("VACUUM INTO ?", (str(draft),))
            copy = apsw.Connection(str(draft))
            upgrade(copy)
            copy.close()
            publish_catalog(draft, path)
        except BaseException:
            remove_file(draft)
            raise
    finally:
        connection.close()


def _index_all(connection: apsw.Connection) -> None:
    """Fill our tables from the document's."""
    entries = connection.execute(
        "SELECT video_id, title, categories_json, snapshot_id, created_at FROM catalog_item"
        " ORDER BY video_id"
    ).fetchall()
    for number, (video_id, title, categories, _, _) in enumerate(entries, 1):
        _index(connection, number, str(video_id), str(title), msgspec.json.decode(str(categories)))
    _count_facets(connection)
    newest = max(entries, key=lambda row: str(row[4]), default=None)
    if newest is not None:
        info = SnapshotInfo(
            snapshot_id=str(newest[3]),
            source="unknown",
            created_at=str(newest[4]),
            item_count=len(entries),
        )
        _set_info(connection, info)


def _index(
    connection: apsw.Connection, number: int, video_id: str, title: str, categories: list[str]
) -> None:
    sort = " ".join(words(title)) or fold(title)
    connection.execute("INSERT INTO catalog_entry VALUES (?, ?, ?)", (number, video_id, sort))
    connection.execute(
        "INSERT INTO catalog_words(rowid, title, categories) VALUES (?, ?, ?)",
        (
            number,
            " ".join(words(title)),
            BETWEEN_TEXTS.join(" ".join(words(each)) for each in categories),
        ),
    )


def _count_facets(connection: apsw.Connection) -> None:
    connection.execute(
        "INSERT INTO catalog_facet SELECT category, count(*) FROM catalog_item_category"
        " GROUP BY category"
    )


def _set_info(connection: apsw.Connection, info: SnapshotInfo) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO catalog_meta VALUES ('snapshot', ?)", (_encode(info).decode(),)
    )


class CatalogWriter:
    """Builds the file of one snapshot. Leaves nothing behind unless `finish` returns.

    Used from one thread at a time.
    """

    def __init__(self, folder: Path, info: SnapshotInfo) -> None:
        self.info = info
        self.count = 0
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", info.snapshot_id)
        self.path = folder / f"catalog-{safe}.sqlite3"
        remove_file(self.path)
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.pragma("journal_mode", "OFF")  # a failed build is deleted
        self._connection.pragma("synchronous", "OFF")
        self._connection.pragma("foreign_keys", True)
        upgrade(self._connection)
        self._connection.execute("BEGIN")
        self._categories: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.discard()

    def add(self, items: Iterable[CatalogItem]) -> None:
        for item in items:
            self._add(item)

    def _add(self, item: CatalogItem) -> None:
        execute = self._connection.execute
        categories = list(dict.fromkeys(item.categories))
        self.count += 1
        execute(
            _INSERT_ITEM,
            (
                item.video_id,
                item.title,
                _encode(categories).decode(),
                item.manifest_url,
                item.duration_seconds,
                item.thumbnail_url,
                self.info.snapshot_id,
                self.info.created_at,
            ),
        )
        for category in categories:
            if category not in self._categories:
                execute("INSERT INTO catalog_category VALUES (?)", (category,))
                self._categories.add(category)
            execute("INSERT INTO catalog_item_category VALUES (?, ?)", (item.video_id, category))
        _index(self._connection, self.count, item.video_id, item.title, categories)

    def finish(self) -> SnapshotInfo:
        """Check, sync and close the file; return the snapshot with its number of items."""
        try:
            self.info = msgspec.structs.replace(self.info, item_count=self.count)
            _count_facets(self._connection)
            _set_info(self._connection, self.info)
            self._connection.execute("COMMIT")
            self._connection.execute("INSERT INTO catalog_words(catalog_words) VALUES ('optimize')")
            self._connection.execute("ANALYZE")
            self._check()
            self._connection.close()
            _sync(self.path)
        except BaseException:
            self.discard()
            raise
        return self.info

    def discard(self) -> None:
        self._connection.close(True)
        remove_file(self.path)

    def _check(self) -> None:
        row = self._connection.execute("SELECT count(*) FROM catalog_entry").fetchone()
        intact = self._connection.pragma("quick_check") == "ok"
        broken = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if not intact or broken is not None or row is None or row[0] != self.count:
            raise UnreadableError(
                "The new catalog is damaged and was not published: check the disk.",
                file=str(self.path),
            )


def build_catalog(folder: Path, info: SnapshotInfo, items: Iterable[CatalogItem]) -> Path:
    """Build the file of a snapshot and return its path; nothing stays behind if it fails."""
    with CatalogWriter(folder, info) as writer:
        writer.add(items)
        writer.finish()
    return writer.path


def publish_catalog(built: Path, path: Path) -> None:
    """Rename a finished file over the current one."""
    os.replace(built, path)
    _sync(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove files that a killed process built and never published."""
    for path in folder.glob("catalog-*.sqlite3"):
        with suppress(FileNotFoundError):
            if time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                remove_file(path)


def remove_file(path: Path) -> None:
    """Remove a file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.remove(f"{path}{suffix}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
