"""Routes of the stored rows, for the operator: an engine that one process has open, such as RocksDB,
is looked into through the service. They read only, and never show secrets."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from keyhouse.engine import Row, Span
from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.http import Route
from keyhouse.schema import Counter, Derived, Record
from keyhouse.systems.audiobooks.library import Data, Items, Library, data, items, page_limit
from keyhouse.systems.audiobooks.permissions import MANAGE_SETTINGS
from keyhouse.systems.audiobooks.routes.table import route

__all__ = ["row_routes"]


class RowsQuery(Struct):
    """`after`: the last key of the page before."""

    prefix: str = ""
    after: str | None = None
    reverse: bool = False
    keys_only: bool = False
    limit: int = 500


class RowQuery(Struct):
    key: str


class ShownRow(Struct, omit_defaults=True):
    key: str
    revision: int
    value: Any = None
    expires: int | None = None


class RowHandlers:
    def __init__(self, library: Library) -> None:
        self._store = library.store

    async def list(self, query: RowsQuery) -> Data[Items[ShownRow]]:
        """List the rows whose keys start with a text, in key order."""
        limit = page_limit(query.limit)
        span = Span.prefix(query.prefix)
        if query.after is not None:
            span = span.before(query.after) if query.reverse else span.after(query.after)
        page = await self._store.row_page(
            span, limit=limit, reverse=query.reverse, keys_only=query.keys_only
        )
        shown = [self._shown(row, keys_only=query.keys_only) for row in page.rows]
        return items(shown, cursor=page.rows[-1].key if page.more else None)

    async def get(self, query: RowQuery) -> Data[ShownRow]:
        """Return one row."""
        row = await self._store.row(query.key)
        if row is None:
            raise NotFoundError("There is no such row.", key=query.key)
        return data(self._shown(row))

    def _shown(self, row: Row, *, keys_only: bool = False) -> ShownRow:
        value = None if keys_only else self._value(row)
        return ShownRow(row.key, row.revision, value, row.expires)

    def _value(self, row: Row) -> Any:
        found = self._store.find(row.key)
        declared = None if found is None else found.declared
        if isinstance(declared, Record) and not isinstance(declared, Counter | Derived):
            try:
                return declared.shown(declared.decode(row.value, row.key))
            except KeyhouseError:
                return None
        return msgspec.json.decode(row.value)


def row_routes(library: Library) -> Mapping[str, Route]:
    on = RowHandlers(library)
    return {
        "rows": route("GET /rows", on.list, MANAGE_SETTINGS),
        "row": route("GET /rows/one", on.get, MANAGE_SETTINGS, problems=[NotFoundError]),
    }
