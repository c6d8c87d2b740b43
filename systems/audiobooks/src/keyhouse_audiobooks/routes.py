"""All routes of the service: those of the rooms, of the pages, of stored rows and of libraries."""

from collections.abc import Mapping

from keyhouse.errors import AccessError, NotFoundError, UsageError
from keyhouse.http import Response, Route
from keyhouse.service.measured_routes import page_table
from keyhouse.service.row_reads import RowQuery, RowsQuery, ShownRow, read_row, read_rows
from keyhouse_audiobooks.accounts.messages import TenantBody, TenantName
from keyhouse_audiobooks.accounts.permissions import MANAGE_SETTINGS
from keyhouse_audiobooks.accounts.routes import account_routes
from keyhouse_audiobooks.books.routes import book_routes, catalog_routes
from keyhouse_audiobooks.files.routes import file_routes, operation_routes
from keyhouse_audiobooks.libraries import Libraries, ServedLibrary
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening.routes import listening_routes, playlist_routes
from keyhouse_audiobooks.lists import Items, items
from keyhouse_audiobooks.messages import Data
from keyhouse_audiobooks.route_table import api
from keyhouse_audiobooks.web.routes import page_routes

__all__ = ["routes"]


class LibraryRowsQuery(RowsQuery):
    """`library`: the one that the caller expects."""

    library: str | None = None


class LibraryRowQuery(RowQuery):
    library: str | None = None


class LibraryHandlers:
    """For the operator: stored rows, which are read only and never show secrets, and libraries."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries

    async def rows(self, query: LibraryRowsQuery, caller: Member) -> Data[Items[ShownRow]]:
        """List the rows whose keys start with a text, in key order."""
        page = await read_rows(self._expected(caller, query.library).store, query)
        return Data(items(page.items, cursor=page.cursor))

    async def row(self, query: LibraryRowQuery, caller: Member) -> Data[ShownRow]:
        """Return one row."""
        return Data(await read_row(self._expected(caller, query.library).store, query.key))

    def _expected(self, caller: Member, name: str | None) -> ServedLibrary:
        library = self._libraries.of(caller)
        if name not in (None, library.name):
            raise UsageError("The token is for another library.", library=library.name)
        return library

    async def tenants(self, caller: Member) -> Data[Items[TenantName]]:
        """List the libraries. Only for admins of the first one."""
        self._require_first(caller)
        return Data(items([TenantName(name) for name in await self._libraries.names()]))

    async def create_tenant(self, body: TenantBody, caller: Member) -> Response[Data[TenantName]]:
        """Create a library, in a session; its first admin is then created by `auth/setup`."""
        caller.require_session()
        self._require_first(caller)
        is_new = not await self._libraries.exists(body.name)
        await self._libraries.open(body.name)
        return Response(Data(TenantName(body.name)), 201 if is_new else 200)

    def _require_first(self, caller: Member) -> None:
        if not self._libraries.is_first(caller):
            raise AccessError("Only admins of the first library manage libraries.")


def routes(libraries: Libraries) -> Mapping[str, Route]:
    """Return the routes by operation."""
    on = LibraryHandlers(libraries)
    tenant = Data[TenantName]
    tenants = {
        "tenants": api.get("/tenants", on.tenants, scope=MANAGE_SETTINGS),
        "create_tenant": api.post(
            "/tenants",
            on.create_tenant,
            scope=MANAGE_SETTINGS,
            replies={200: tenant, 201: tenant},
        ),
    }
    return {
        **account_routes(libraries),
        **book_routes(libraries),
        **catalog_routes(libraries),
        **file_routes(libraries),
        **listening_routes(libraries),
        **playlist_routes(libraries),
        "rows": api.get("/rows", on.rows, scope=MANAGE_SETTINGS),
        "row": api.get("/rows/one", on.row, scope=MANAGE_SETTINGS, problems=[NotFoundError]),
        **operation_routes(libraries),
        **page_table(page_routes(libraries)),
        **(tenants if libraries.has_tenants else {}),
    }
