"""The HTTP routes of stored rows, for admins: read only, without secrets."""

from collections.abc import Mapping

from keyhouse.advice import nearest
from keyhouse.errors import NotFoundError
from keyhouse.http import Route, RouteGroup
from keyhouse.service.row_reads import RowQuery, RowsPage, RowsQuery, ShownRow, read_row, read_rows
from keyhouse.store import Store
from keyhouse_playlist.accounts.roles import ADMIN
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.errors import RoleError
from keyhouse_playlist.messages import API
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["row_routes"]


class BucketRowsQuery(RowsQuery, kw_only=True):
    bucket: str


class BucketRowQuery(RowQuery, kw_only=True):
    bucket: str


class RowHandlers:
    def __init__(self, stores: PlaylistStores) -> None:
        self._stores = {store.space: store for store in stores.all}

    async def list(self, query: BucketRowsQuery, caller: ChannelMember) -> RowsPage:
        """List the rows of a bucket whose keys start with a text, in key order; for admins."""
        return await read_rows(self._store(query.bucket), query)

    async def get(self, query: BucketRowQuery, caller: ChannelMember) -> ShownRow:
        """Return one row of a bucket; for admins."""
        return await read_row(self._store(query.bucket), query.key)

    def _store(self, bucket: str) -> Store:
        found = self._stores.get(bucket)
        if found is None:
            raise NotFoundError("There is no such bucket.", **nearest(bucket, sorted(self._stores)))
        return found


def row_routes(stores: PlaylistStores) -> Mapping[str, Route]:
    on = RowHandlers(stores)
    api = RouteGroup(API, scope=ADMIN, tag="rows", problems=[NotFoundError, RoleError])
    return {"rows": api.get("/rows", on.list), "row": api.get("/rows/one", on.get)}
