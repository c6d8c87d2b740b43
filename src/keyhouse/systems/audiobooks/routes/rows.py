"""Routes of the stored rows, for the operator. They read only, and never show secrets."""

from collections.abc import Mapping

from keyhouse.errors import NotFoundError, UsageError
from keyhouse.http import Route
from keyhouse.service.row_reads import RowQuery, RowsQuery, ShownRow, read_row, read_rows
from keyhouse.systems.audiobooks.library import Data, Items, Library, data, items
from keyhouse.systems.audiobooks.permissions import MANAGE_SETTINGS
from keyhouse.systems.audiobooks.routes.table import api

__all__ = ["row_routes"]


class LibraryRowsQuery(RowsQuery):
    """`library`: the one that the caller expects."""

    library: str | None = None


class LibraryRowQuery(RowQuery):
    library: str | None = None


class RowHandlers:
    def __init__(self, library: Library) -> None:
        self._store = library.store
        self._name = library.name

    async def list(self, query: LibraryRowsQuery) -> Data[Items[ShownRow]]:
        """List the rows whose keys start with a text, in key order."""
        self._check(query.library)
        page = await read_rows(self._store, query)
        return items(page.items, cursor=page.cursor)

    async def get(self, query: LibraryRowQuery) -> Data[ShownRow]:
        """Return one row."""
        self._check(query.library)
        return data(await read_row(self._store, query.key))

    def _check(self, expected: str | None) -> None:
        if expected not in (None, self._name):
            raise UsageError("The token is for another library.", library=self._name)


def row_routes(library: Library) -> Mapping[str, Route]:
    on = RowHandlers(library)
    return {
        "rows": api.get("/rows", on.list, scope=MANAGE_SETTINGS),
        "row": api.get("/rows/one", on.get, scope=MANAGE_SETTINGS, problems=[NotFoundError]),
    }
