"""The catalog as the service asks it: from threads, without a catalog, and as one snapshot each."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from keyhouse.service.spec import ServiceContext
from keyhouse.service.thread_priority import spare_cores
from keyhouse_playlist.catalog.messages import CatalogQuery
from keyhouse_playlist.catalog.tables import CatalogItem, CatalogReader, MediaCatalog, SearchResult

__all__ = ["CATALOG_FILE", "CatalogAccess"]

R = TypeVar("R")

CATALOG_FILE: Final = "catalog.sqlite3"

SEARCHES_MAX: Final = 4
"""Searches at once, where there are as many cores and one more. One of a large catalog computes for
up to a tenth of a second; the event loop needs a core, and the other threads."""


class CatalogAccess:
    """Before the first refresh the catalog is empty and has no snapshot."""

    def __init__(self, catalog: MediaCatalog, context: ServiceContext) -> None:
        self._catalog = catalog
        self._run = context.run_blocking
        self._searching = asyncio.Semaphore(spare_cores(SEARCHES_MAX))

    async def _ask(self, question: Callable[[CatalogReader], R], without: R) -> R:
        def ask() -> R:
            reader = self._catalog.reader()
            return without if reader is None else question(reader)

        return await self._run(ask)

    async def search(self, query: CatalogQuery) -> SearchResult:
        def search(reader: CatalogReader) -> SearchResult:
            return reader.search(
                query.q,
                query.category,
                limit=query.limit,
                offset=query.offset,
                facets=query.facets,
            )

        async with self._searching:
            return await self._ask(search, SearchResult(None, 0, [], {} if query.facets else None))

    async def categories(self) -> list[str]:
        return await self._ask(CatalogReader.categories, [])

    async def get(self, video_id: str) -> CatalogItem | None:
        return await self._ask(lambda reader: reader.get(video_id), None)

    async def get_many(self, video_ids: Iterable[str]) -> dict[str, CatalogItem]:
        wanted = list(video_ids)
        if not wanted:
            return {}
        return await self._ask(lambda reader: reader.get_many(wanted), {})

    async def by_manifest(self, urls: Iterable[str]) -> dict[str, CatalogItem]:
        wanted = list(urls)
        if not wanted:
            return {}
        return await self._ask(lambda reader: reader.by_manifest(wanted), {})

    async def durations(self) -> dict[str, int | None]:
        """Return the duration of every item of the catalog."""
        return await self._ask(CatalogReader.durations, {})
