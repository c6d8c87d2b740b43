"""Routes of the stored rows, for the operator. They read only, and never show secrets."""

from collections.abc import Mapping

from keyhouse.errors import NotFoundError
from keyhouse.http import Route
from keyhouse.service.row_reads import RowQuery, RowsQuery, ShownRow, read_row, read_rows
from keyhouse.systems.audiobooks.library import Data, Items, Library, data, items
from keyhouse.systems.audiobooks.permissions import MANAGE_SETTINGS
from keyhouse.systems.audiobooks.routes.table import route

__all__ = ["row_routes"]


class RowHandlers:
    def __init__(self, library: Library) -> None:
        self._store = library.store

    async def list(self, query: RowsQuery) -> Data[Items[ShownRow]]:
        """List the rows whose keys start with a text, in key order."""
        page = await read_rows(self._store, query)
        return items(page.items, cursor=page.cursor)

    async def get(self, query: RowQuery) -> Data[ShownRow]:
        """Return one row."""
        return data(await read_row(self._store, query.key))


def row_routes(library: Library) -> Mapping[str, Route]:
    on = RowHandlers(library)
    return {
        "rows": route("GET /rows", on.list, MANAGE_SETTINGS),
        "row": route("GET /rows/one", on.get, MANAGE_SETTINGS, problems=[NotFoundError]),
    }
