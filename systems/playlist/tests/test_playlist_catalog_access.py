"""Searches of the catalog leave a core to the event loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from keyhouse.service.spec import ServiceContext
from keyhouse.service.thread_priority import spare_cores
from keyhouse_playlist.catalog.access import SEARCHES_MAX, CatalogAccess
from keyhouse_playlist.catalog.messages import CatalogQuery
from keyhouse_playlist.catalog.tables import MediaCatalog


class CountedRuns:
    """Runs calls as the context of a service does, and notes how many run at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return function(*arguments)


def test_searches_of_many_members_do_not_use_all_cores(tmp_path: Path) -> None:
    """Eight at once, of a large catalog, held up others for 0.3 s."""
    runs = CountedRuns()

    async def run() -> None:
        access = CatalogAccess(
            MediaCatalog(tmp_path / "catalog.db"), cast(ServiceContext, cast(Any, runs))
        )
        found = await asyncio.gather(*(access.search(CatalogQuery(q="a")) for _ in range(32)))
        assert all(result.total == 0 for result in found)
        assert runs.most == spare_cores(SEARCHES_MAX)
        await asyncio.gather(*(access.get("v") for _ in range(32)))
        assert runs.most == 32, "the others are short"

    asyncio.run(run())
