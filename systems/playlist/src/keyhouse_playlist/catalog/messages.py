"""Requests and responses of the catalog."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse_playlist.catalog.tables.item import CatalogItem
from keyhouse_playlist.limits import SEARCH_ITEMS_MAX


class CatalogQuery(msgspec.Struct):
    q: Annotated[str, Meta(description="Words that an item must have.")] = ""
    category: Annotated[
        list[str], Meta(description="Categories that an item must have; repeatable.")
    ] = []
    limit: Annotated[int, Meta(ge=1, le=SEARCH_ITEMS_MAX)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0
    facets: bool = False


class Facets(msgspec.Struct):
    category: dict[str, int]


class SearchReply(msgspec.Struct):
    snapshot_id: str | None
    total: int
    items: list[CatalogItem]
    facets: Facets | UnsetType = UNSET


class Categories(msgspec.Struct):
    categories: list[str]
