"""The catalog: a SQLite file with the tables of the document, searched with FTS5.

Only this package speaks to SQLite. It knows nothing of stores, HTTP or NATS: a catalog is built
from items, published by renaming its file, and read.
"""

from keyhouse_playlist.catalog.tables.file import (
    CATALOG_VERSION,
    CatalogWriter,
    build_catalog,
    downgrade,
    publish_catalog,
    remove_leftovers,
    upgrade,
    upgrade_file,
)
from keyhouse_playlist.catalog.tables.item import CatalogItem, SnapshotInfo
from keyhouse_playlist.catalog.tables.reader import CatalogReader, MediaCatalog, SearchResult
from keyhouse_playlist.catalog.tables.sources import check_item, is_web_address, read_source_file

__all__ = [
    "CATALOG_VERSION",
    "CatalogItem",
    "CatalogReader",
    "CatalogWriter",
    "MediaCatalog",
    "SearchResult",
    "SnapshotInfo",
    "build_catalog",
    "check_item",
    "downgrade",
    "is_web_address",
    "publish_catalog",
    "read_source_file",
    "remove_leftovers",
    "upgrade",
    "upgrade_file",
]
