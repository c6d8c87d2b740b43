"""Refreshing the catalog: read a source, build a file beside the current one, publish it, and
record the snapshot.

    step                         killed after it
    --------------------------   ------------------------------------------------------------------
    read the source, build       the old catalog, and a file that a later refresh removes
    rename over the current      the new catalog; `current` is corrected at the next start
    commit snapshot, `current`   done

The processes that share a data folder share its file: one of them builds at a time, the one with
the lock beside it. When `current` names a snapshot that is newer than the file, the first of them
reads the same source and builds a file with that snapshot's id.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog

from keyhouse.errors import DataError
from keyhouse.file_lock import FileLock
from keyhouse.schema import SECONDS
from keyhouse.store import Transaction
from keyhouse_playlist.catalog.tables import (
    CatalogItem,
    CatalogWriter,
    MediaCatalog,
    SnapshotInfo,
    publish_catalog,
    read_source_file,
    remove_leftovers,
)
from keyhouse_playlist.errors import CatalogFullError, CatalogSourceError, RefreshRunningError
from keyhouse_playlist.limits import CATALOG_ITEMS_MAX
from keyhouse_playlist.schema import CURRENT, SNAPSHOT, Snapshot
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["CatalogSource", "FileSource", "Items", "Progress", "Refresh", "RunBlocking"]

T = TypeVar("T")

LOCK_SECONDS: Final = 0.2
"""Interval at which a process asks for the lock of the folder, to follow another one."""

_log = structlog.get_logger("keyhouse.playlist")

RunBlocking = Callable[..., Awaitable[Any]]
"""Calls a function that blocks in a thread: `ServiceContext.run_blocking`."""

Progress = Callable[[int, int | None], None]
"""Called with the items read so far, and their number if it is known."""

Items = AsyncIterator[tuple[Sequence[CatalogItem], int | None]]
"""Some items at a time, and the number of all if it is known."""


class CatalogSource(Protocol):
    """Where a catalog comes from. `name` is stored with the snapshot; `can_follow` tells whether
    another process can read the same items."""

    name: str
    can_follow: bool

    def items(self) -> Items: ...


class Refresh:
    """Builds and publishes catalogs, one at a time. `source` is the one of the settings, if any."""

    def __init__(
        self,
        catalog: MediaCatalog,
        stores: PlaylistStores,
        run: RunBlocking,
        source: CatalogSource | None,
    ) -> None:
        self._catalog = catalog
        self._stores = stores
        self._run = run
        self.source = source
        self._one_at_a_time = asyncio.Lock()
        self._lock = FileLock(catalog.path.with_suffix(".lock"))

    async def refresh(
        self,
        source: CatalogSource | None = None,
        progress: Progress | None = None,
        *,
        allow_empty: bool = False,
    ) -> Snapshot:
        """Read the source and publish a new snapshot. A failure changes nothing. Raises
        RefreshRunningError while a process of this data folder builds another catalog.

        A source without items is rejected unless `allow_empty`: it would hide the whole catalog.
        """
        source = source or self.source
        if source is None:
            raise CatalogSourceError(
                "There is no source of the catalog: set mediacms_url, or refresh from a file."
            )
        if self._one_at_a_time.locked():
            raise _is_running()
        now = self._stores.now_text()
        info = SnapshotInfo(
            snapshot_id=f"{now}-{secrets.token_hex(4)}", source=source.name, created_at=now
        )
        async with self._alone(waits=False):
            await self._run(remove_leftovers, self._catalog.path.parent)
            built = await self._build(source, info, progress, allow_empty=allow_empty)
            return await self._record(built)

    @asynccontextmanager
    async def _alone(self, *, waits: bool) -> AsyncIterator[None]:
        """Hold the lock of the folder. Raises RefreshRunningError, unless it is to wait."""
        async with self._one_at_a_time:
            while not self._lock.acquire():
                if not waits:
                    raise _is_running()
                await asyncio.sleep(LOCK_SECONDS)
            try:
                yield
            finally:
                self._lock.release(delete=True)

    async def _build(
        self,
        source: CatalogSource,
        info: SnapshotInfo,
        progress: Progress | None = None,
        *,
        allow_empty: bool = True,
    ) -> SnapshotInfo:
        """Build the file and rename it over the current one."""
        folder = self._catalog.path.parent
        writer = await self._run(CatalogWriter, folder, info)
        try:
            async with aclosing(source.items()) as chunks:  # type: ignore[type-var]
                async for items, total in chunks:
                    await _to_its_end(self._run(writer.add, items))
                    if writer.count > CATALOG_ITEMS_MAX:
                        raise CatalogFullError(
                            "The source has too many items.", limit=CATALOG_ITEMS_MAX
                        )
                    if progress is not None:
                        progress(writer.count, total)
            if not writer.count and not allow_empty:
                raise CatalogSourceError(
                    "The source has no items, so the catalog is unchanged: check it, or allow an"
                    " empty catalog (--allow-empty).",
                    source=source.name,
                )
            finished: SnapshotInfo = await _to_its_end(self._run(writer.finish))
        except BaseException:
            writer.discard()
            raise
        await self._run(publish_catalog, writer.path, self._catalog.path)
        return finished

    async def _record(self, info: SnapshotInfo) -> Snapshot:
        snapshot = Snapshot(
            snapshot_id=info.snapshot_id,
            source=info.source,
            created_at=info.created_at,
            item_count=info.item_count,
        )

        async def work(tx: Transaction) -> None:
            await tx.put(SNAPSHOT, snapshot, snapshot_id=snapshot.snapshot_id)
            await tx.put(CURRENT, snapshot)

        await self._stores.snapshots.transact(work)
        return snapshot

    # Several processes

    async def prepare(self) -> None:
        """Correct `current` from the file if a refresh was killed before recording its snapshot."""
        await self._run(remove_leftovers, self._catalog.path.parent)
        info = await self._own()
        if info is None:
            return
        try:
            current = await self._stores.snapshots.get(CURRENT)
        except DataError as error:
            _log.warning("current snapshot not corrected", reason=str(error))
            return
        if current is not None and (
            current.snapshot_id == info.snapshot_id
            or not _is_newer(info.created_at, current.created_at)
        ):
            return
        await self._record(info)
        _log.info("current snapshot corrected", snapshot=info.snapshot_id)

    async def follow(self) -> None:
        """Keep the file of the folder at the snapshot that `current` names, without end."""
        await self.prepare()
        while True:
            revision = await self._stores.snapshots.revision()
            await self._follow_current()
            changes = self._stores.snapshots.watch(CURRENT, since=revision, unreadable="skip")
            async with aclosing(changes):
                async for _ in changes:
                    await self._follow_current()

    async def _follow_current(self) -> None:
        try:
            current = await self._stores.snapshots.get(CURRENT)
        except DataError:
            return
        async with self._alone(waits=True):
            info = await self._own()
            if current is None or (info and info.snapshot_id == current.snapshot_id):
                return
            if info is not None and not _is_newer(current.created_at, info.created_at):
                return
            source = self.source
            if source is None or source.name != current.source or not source.can_follow:
                _log.warning(
                    "the catalog was refreshed elsewhere: refresh it here from the same source",
                    snapshot=current.snapshot_id,
                    source=current.source,
                )
                return
            info = SnapshotInfo(
                snapshot_id=current.snapshot_id,
                source=current.source,
                created_at=current.created_at,
            )
            await self._build(source, info)
            _log.info("catalog refreshed", snapshot=current.snapshot_id)

    async def _own(self) -> SnapshotInfo | None:
        """Return the snapshot of the file of the folder."""
        reader = await self._run(self._catalog.reader)
        info: SnapshotInfo | None = None if reader is None else reader.info
        return info


class FileSource:
    """The items of a file, JSON or CSV. Read completely, and checked, before anything is built."""

    can_follow = False
    name = "file"

    def __init__(self, path: Path, run: RunBlocking) -> None:
        self._path = path
        self._run = run

    async def items(self) -> Items:
        items = await self._run(read_source_file, self._path)
        for start in range(0, len(items), 500):
            yield items[start : start + 500], len(items)


def _is_running() -> RefreshRunningError:
    return RefreshRunningError("The catalog is being refreshed: try again when it is done.")


async def _to_its_end(call: Awaitable[T]) -> T:
    """Await a call in a thread. If the caller is cancelled, the call ends first: its file is closed
    only then."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _is_newer(one: str, other: str) -> bool:
    return SECONDS.parse(one) >= SECONDS.parse(other)
