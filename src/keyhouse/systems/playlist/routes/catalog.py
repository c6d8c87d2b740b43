"""Routes of the catalog."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta

from keyhouse.errors import NotFoundError
from keyhouse.http import Route, RouteGroup
from keyhouse.systems.playlist import messages
from keyhouse.systems.playlist.catalog import CatalogItem
from keyhouse.systems.playlist.catalog_access import CatalogAccess
from keyhouse.systems.playlist.routes.prefix import API
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions

__all__ = ["catalog_routes"]

Id = Annotated[str, Meta(min_length=1, examples=["8FnmbsrWl"])]


class CatalogRouteHandlers:
    def __init__(self, catalog: CatalogAccess, sessions: MemberSessions) -> None:
        self._catalog = catalog
        self._sessions = sessions

    async def search(
        self, query: messages.CatalogQuery, caller: ChannelMember | None
    ) -> messages.SearchReply:
        """Search titles and categories: every word must match, the last one also as the start of a
        word. Without words: all items."""
        self._sessions.check_reader(caller)
        found = await self._catalog.search(query)
        facets = UNSET if found.facets is None else messages.Facets(found.facets)
        return messages.SearchReply(found.snapshot_id, found.total, found.items, facets)

    async def categories(self, caller: ChannelMember | None) -> messages.Categories:
        """List the categories."""
        self._sessions.check_reader(caller)
        return messages.Categories(await self._catalog.categories())

    async def item(self, id: Id, caller: ChannelMember | None) -> CatalogItem:
        """Return one item."""
        self._sessions.check_reader(caller)
        found = await self._catalog.get(id)
        if found is None:
            raise NotFoundError("The catalog has no such item.", video_id=id)
        return found


def catalog_routes(catalog: CatalogAccess, sessions: MemberSessions) -> Mapping[str, Route]:
    on = CatalogRouteHandlers(catalog, sessions)

    api = RouteGroup(f"{API}/catalog", scope="", tag="catalog")
    return {
        "catalog_search": api.get("/search", on.search),
        "catalog_categories": api.get("/categories", on.categories),
        "catalog_item": api.get("/items/{id}", on.item, problems=[NotFoundError]),
        "catalog_item_alias": api.get("/{id}", on.item, problems=[NotFoundError]),
    }
