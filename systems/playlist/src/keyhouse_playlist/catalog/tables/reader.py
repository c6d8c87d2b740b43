"""Reads of a catalog: search, facets, single items.

A `CatalogReader` has one file open, so all that it returns is of one snapshot. `MediaCatalog`
notices that another file was renamed into place, by this process or another one, and opens that;
reads that have started finish on the file that they started with.

Readers are used from threads: each call takes its own connection.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw
import msgspec

from keyhouse.errors import DataError
from keyhouse.search import match_expression, parse_query
from keyhouse_playlist.catalog.tables.file import CATALOG_VERSION, upgrade_file
from keyhouse_playlist.catalog.tables.item import CatalogItem, SnapshotInfo

__all__ = ["CatalogReader", "MediaCatalog", "SearchResult"]

_COLUMNS: Final = "video_id, title, categories_json, manifest_url, duration_seconds, thumbnail_url"
_TITLE_WEIGHT: Final = 10.0
_LOOKUPS_AT_ONCE: Final = 500
_decode_categories = msgspec.json.Decoder(list[str]).decode


class SearchResult(msgspec.Struct, frozen=True):
    """A page of items, the number of all that match, and the items of each category among them."""

    snapshot_id: str | None
    total: int
    items: list[CatalogItem]
    facets: dict[str, int] | None = None


class CatalogReader:
    """One catalog file. `info` is None for a catalog that was never filled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[apsw.Connection] = [self._open()]
        self.info = self._read_info()
        self._durations: dict[str, int | None] | None = None

    @property
    def snapshot_id(self) -> str | None:
        return None if self.info is None else self.info.snapshot_id

    def search(
        self,
        query: str,
        categories: Sequence[str] = (),
        *,
        limit: int,
        offset: int = 0,
        facets: bool = False,
    ) -> SearchResult:
        """Return the items that have all words of the query and all categories, best first.

        An empty query finds everything; one of symbols alone finds nothing.
        """
        terms = parse_query(query)
        if not terms and query.strip():
            return SearchResult(self.snapshot_id, 0, [], {} if facets else None)
        matching = _matching(match_expression(terms) if terms else None, categories)
        with self._connection() as connection:
            ids = _page(connection, matching, limit, offset)
            total = self._total(connection, matching, len(ids), limit, offset)
            items = {item.video_id: item for item in _items(connection, "video_id", ids)}
            counted = _facets(connection, matching) if facets else None
        return SearchResult(self.snapshot_id, total, [items[id] for id in ids], counted)

    def _total(
        self,
        connection: apsw.Connection,
        matching: "_Matching",
        count: int,
        limit: int,
        offset: int,
    ) -> int:
        if not matching.where:
            return 0 if self.info is None else self.info.item_count
        if count < limit and (count or not offset):
            return offset + count
        sql = f"SELECT count(*) FROM {matching.tables}{matching.where}"
        return int(_first(connection, sql, matching.bindings))

    def categories(self) -> list[str]:
        with self._connection() as connection:
            rows = connection.execute("SELECT category FROM catalog_category ORDER BY category")
            return [str(category) for (category,) in rows]

    def get(self, video_id: str) -> CatalogItem | None:
        with self._connection() as connection:
            return next(_items(connection, "video_id", [video_id]), None)

    def get_many(self, video_ids: Iterable[str]) -> dict[str, CatalogItem]:
        """Return the items that are known, by id."""
        return self._lookup("video_id", video_ids)

    def by_manifest(self, urls: Iterable[str]) -> dict[str, CatalogItem]:
        """Return the items that are known, by their manifest URL."""
        return self._lookup("manifest_url", urls)

    def _lookup(self, column: str, values: Iterable[str]) -> dict[str, CatalogItem]:
        wanted = list(dict.fromkeys(values))
        items: dict[str, CatalogItem] = {}
        with self._connection() as connection:
            for start in range(0, len(wanted), _LOOKUPS_AT_ONCE):
                some = wanted[start : start + _LOOKUPS_AT_ONCE]
                for item in _items(connection, column, some):
                    items.setdefault(getattr(item, column), item)
        return items

    def durations(self) -> dict[str, int | None]:
        """Return the duration of every item; read once."""
        if self._durations is None:
            with self._connection() as connection:
                rows = connection.execute("SELECT video_id, duration_seconds FROM catalog_item")
                self._durations = {
                    str(id): None if seconds is None else int(seconds) for id, seconds in rows
                }
        return self._durations

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _read_info(self) -> SnapshotInfo | None:
        with self._connection() as connection:
            text = _first(
                connection, "SELECT max(value) FROM catalog_meta WHERE name = 'snapshot'", ()
            )
        return None if text is None else msgspec.json.decode(str(text), type=SnapshotInfo)

    @contextmanager
    def _connection(self) -> Iterator[apsw.Connection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        yield connection
        self._idle.append(connection)  # not after an error: then it is closed with its last use

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(
            f"file:{self._path}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        connection.set_busy_timeout(1_000)
        return connection


class MediaCatalog:
    """The catalog at a path: its current file, which may be replaced at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: CatalogReader | None = None
        self._identity: tuple[int, int] | None = None

    def reader(self) -> CatalogReader | None:
        """Return the reader of the file that is there now; None if there is none."""
        identity = self._current()
        if identity != self._identity:
            self._reader = None if identity is None else self._opened()
            self._identity = identity if identity == self._current() else None
        return self._reader

    def _opened(self) -> CatalogReader:
        try:
            return CatalogReader(self.path)
        except apsw.SQLError:
            upgrade_file(self.path)  # an earlier version, or another program's file
            self._identity = None
        try:
            return CatalogReader(self.path)
        except apsw.Error as error:
            raise DataError(
                "The file of the catalog cannot be read: refresh the catalog.",
                file=str(self.path),
                version=CATALOG_VERSION,
            ) from error

    def _current(self) -> tuple[int, int] | None:
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns


class _Matching(NamedTuple):
    """The tables, the condition and the bindings of a search, and the start of its order."""

    tables: str
    where: str
    bindings: list[str]
    score: str


def _matching(match: str | None, categories: Sequence[str]) -> _Matching:
    tables = "catalog_entry AS entry"
    conditions: list[str] = []
    bindings: list[str] = []
    score = ""
    if match is not None:
        tables = "catalog_words JOIN catalog_entry AS entry ON entry.id = catalog_words.rowid"
        conditions.append("catalog_words MATCH ?")
        bindings.append(match)
        score = f"round(bm25(catalog_words, {_TITLE_WEIGHT}, 1.0), 6), "
    for category in dict.fromkeys(categories):
        conditions.append(
            "EXISTS (SELECT 1 FROM catalog_item_category AS other"
            " WHERE other.category = ? AND other.video_id = entry.video_id)"
        )
        bindings.append(category)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return _Matching(tables, where, bindings, score)


def _page(connection: apsw.Connection, matching: _Matching, limit: int, offset: int) -> list[str]:
    sql = (
        f"SELECT entry.video_id FROM {matching.tables}{matching.where}"
        f" ORDER BY {matching.score}entry.sort, entry.id LIMIT ? OFFSET ?"
    )
    return [str(id) for (id,) in connection.execute(sql, (*matching.bindings, limit, offset))]


def _facets(connection: apsw.Connection, matching: _Matching) -> dict[str, int]:
    sql = "SELECT category, items FROM catalog_facet ORDER BY category"
    if matching.where:
        sql = (
            "SELECT category, count(*) FROM catalog_item_category WHERE video_id IN"
            f" (SELECT entry.video_id FROM {matching.tables}{matching.where})"
            " GROUP BY category ORDER BY category"
        )
    return {str(name): int(count) for name, count in connection.execute(sql, matching.bindings)}


def _items(
    connection: apsw.Connection, column: str, values: Sequence[str]
) -> Iterator[CatalogItem]:
    marks = ", ".join("?" for _ in values)
    sql = f"SELECT {_COLUMNS} FROM catalog_item WHERE {column} IN ({marks})"
    for video_id, title, categories, manifest, duration, thumbnail in connection.execute(
        sql, values
    ):
        yield CatalogItem(
            video_id=video_id,
            title=title,
            categories=_decode_categories(categories),
            manifest_url=manifest,
            duration_seconds=duration,
            thumbnail_url=thumbnail,
        )


def _first(connection: apsw.Connection, sql: str, bindings: Sequence[str]) -> Any:
    row = connection.execute(sql, bindings).fetchone()
    return None if row is None else row[0]
