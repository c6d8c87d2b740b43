"""The HTTP routes of the catalog."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta

from keyhouse.errors import NotFoundError
from keyhouse.http import Route, RouteGroup
from keyhouse_playlist.accounts.roles import READ
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog import messages
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.messages import API

__all__ = ["catalog_routes"]

ItemId = Annotated[str, Meta(min_length=1, examples=["8FnmbsrWl"])]


class CatalogHandlers:
    def __init__(self, catalog: CatalogAccess) -> None:
        self._catalog = catalog

    async def search(
        self, query: messages.CatalogQuery, caller: ChannelMember
    ) -> messages.SearchReply:
        """Search titles and categories: every word must match, the last one also as the start of a
        word. Without words: all items."""
        result = await self._catalog.search(query)
        facets = UNSET if result.facets is None else messages.Facets(result.facets)
        return messages.SearchReply(result.snapshot_id, result.total, result.items, facets)

    async def categories(self, caller: ChannelMember) -> messages.Categories:
        """List the categories."""
        return messages.Categories(await self._catalog.categories())

    async def item(self, id: ItemId, caller: ChannelMember) -> CatalogItem:
        """Return one item."""
        item = await self._catalog.get(id)
        if item is None:
            raise NotFoundError("The catalog has no such item.", video_id=id)
        return item


def catalog_routes(catalog: CatalogAccess) -> Mapping[str, Route]:
    on = CatalogHandlers(catalog)

    api = RouteGroup(f"{API}/catalog", scope=READ, tag="catalog")
    return {
        "catalog_search": api.get("/search", on.search),
        "catalog_categories": api.get("/categories", on.categories),
        "catalog_item": api.get("/items/{id}", on.item, problems=[NotFoundError]),
        "catalog_item_alias": api.get("/{id}", on.item, problems=[NotFoundError]),
    }
