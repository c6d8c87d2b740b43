"""Routes of the stored rows, for admins. They read only, and never show secrets."""

from collections.abc import Mapping

from keyhouse.errors import NotFoundError
from keyhouse.http import Route, RouteGroup
from keyhouse.service.row_reads import RowQuery, RowsPage, RowsQuery, ShownRow, read_row, read_rows
from keyhouse.store import Store
from keyhouse.systems.playlist.errors import RoleError
from keyhouse.systems.playlist.routes.prefix import API
from keyhouse.systems.playlist.sessions import ChannelMember
from keyhouse.systems.playlist.stores import PlaylistStores

__all__ = ["row_routes"]


class BucketRowsQuery(RowsQuery, kw_only=True):
    bucket: str


class BucketRowQuery(RowQuery, kw_only=True):
    bucket: str


class PlaylistRowHandlers:
    def __init__(self, stores: PlaylistStores) -> None:
        self._stores = {store.space: store for store in stores.all}

    async def list(self, query: BucketRowsQuery, caller: ChannelMember) -> RowsPage:
        """List the rows of a bucket whose keys start with a text, in key order; for admins."""
        caller.require_admin()
        return await read_rows(self._store(query.bucket), query)

    async def get(self, query: BucketRowQuery, caller: ChannelMember) -> ShownRow:
        """Return one row of a bucket; for admins."""
        caller.require_admin()
        return await read_row(self._store(query.bucket), query.key)

    def _store(self, bucket: str) -> Store:
        found = self._stores.get(bucket)
        if found is None:
            raise NotFoundError("There is no such bucket.", known=sorted(self._stores))
        return found


def row_routes(stores: PlaylistStores) -> Mapping[str, Route]:
    on = PlaylistRowHandlers(stores)
    api = RouteGroup(API, scope="", tag="rows", problems=[NotFoundError, RoleError])
    return {"rows": api.get("/rows", on.list), "row": api.get("/rows/one", on.get)}
