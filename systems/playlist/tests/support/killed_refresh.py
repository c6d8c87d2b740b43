"""A refresh that is killed at every point: `python -m … FOLDER STEP` prints how many it tried.

A point is a call or a return in the modules that build, publish and record a catalog, calls into
SQLite and the operating system among them. Each refresh runs in a forked process, which kills
itself; another one checks what is left.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from keyhouse import open_engine
from keyhouse.service.blocking import BlockingPool
from keyhouse_playlist.catalog import refresh as refresh_module
from keyhouse_playlist.catalog.refresh import FileSource, Refresh
from keyhouse_playlist.catalog.tables import MediaCatalog
from keyhouse_playlist.catalog.tables import file as file_module
from keyhouse_playlist.schema import CURRENT, SNAPSHOT
from keyhouse_playlist.stores import PlaylistStores

MODULES = {refresh_module.__file__, file_module.__file__}
OLD = '[{"video_id": "old", "title": "Old", "manifest_url": "https://m/old", "categories": ["C"]}]'
NEW = (
    '[{"video_id": "a", "title": "New", "manifest_url": "https://m/a", "categories": ["C", "D"]},'
    ' {"video_id": "b", "title": "New", "manifest_url": "https://m/b"}]'
)


async def refreshed(folder: Path, text: str) -> None:
    source = folder / "source.json"
    source.write_text(text)
    async with opened(folder) as parts:
        await parts.refresh.refresh(FileSource(source, parts.pool.run))


class opened:
    """The store and the catalog of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pool = BlockingPool()

    async def __aenter__(self) -> "opened":
        self._engine = await open_engine(f"sqlite:{self._folder}/rows.db")
        self.stores = PlaylistStores(self._engine, "default")
        self.catalog = MediaCatalog(self._folder / "catalog.sqlite3")
        self.refresh = Refresh(self.catalog, self.stores, self.pool.run, None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        await self._engine.close()


def refresh_and_die(folder: Path, at: int) -> None:
    """Refresh, and kill this process at the point with this number."""
    count = 0

    def count_point(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if frame.f_code.co_filename in MODULES:
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count_point)
    sys.setprofile(count_point)
    asyncio.run(refreshed(folder, NEW))


def check(folder: Path) -> None:
    """Exit with an error unless the catalog is the old or the new one, and can be refreshed."""

    async def look() -> None:
        async with opened(folder) as parts:
            reader = parts.catalog.reader()
            assert reader is not None and reader.info is not None
            found = reader.search("", limit=10, facets=True)
            shown = {each.video_id for each in found.items}
            assert (shown, found.facets) in [({"old"}, {"C": 1}), ({"a", "b"}, {"C": 1, "D": 1})]
            current = await parts.stores.snapshots.get(CURRENT)
            assert current is not None
            if current.item_count == 2:
                assert shown == {"a", "b"}, "recorded before it was published"
            await parts.refresh.prepare()
            current = await parts.stores.snapshots.get(CURRENT)
            assert current is not None and current.snapshot_id == reader.snapshot_id
            stored = await parts.stores.snapshots.get(SNAPSHOT, snapshot_id=current.snapshot_id)
            assert stored == current
            for path in folder.glob("catalog-*.sqlite3"):
                os.utime(path, (0, 0))  # an hour later
            await parts.refresh.prepare()
            assert [path.name for path in folder.glob("catalog*.sqlite3*")] == ["catalog.sqlite3"]
        await refreshed(folder, NEW)

    asyncio.run(look())


def forked(function: Any, *arguments: Any) -> int:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode if process.exitcode is not None else 99


def main(folder: Path, step: int) -> int:
    base, tried = folder / "base", folder / "tried"
    base.mkdir()
    assert forked(lambda: asyncio.run(refreshed(base, OLD))) == 0
    at = 1
    while True:
        shutil.rmtree(tried, ignore_errors=True)
        shutil.copytree(base, tried)
        outcome = forked(refresh_and_die, tried, at)
        if outcome == 0:
            return at
        assert outcome == -signal.SIGKILL, outcome
        assert forked(check, tried) == 0, f"killed at point {at}"
        at += step


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))
