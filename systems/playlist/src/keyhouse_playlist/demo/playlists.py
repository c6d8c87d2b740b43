"""A demonstration: playlists of the invented catalog, and a channel that plays some of it."""

from typing import Final

from msgspec import UNSET

from keyhouse.errors import ConflictError
from keyhouse.store import Transaction
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.demo.catalog import DemoSource
from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import PLAYLIST, Playlist, PlaylistItem
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["make_playlists", "prepare_robot"]

AUTHOR: Final = "demo"

_PLAYLISTS: Final = {
    "Harbour Lights, season 1": tuple(f"series0-{number:02}" for number in range(1, 7)),
    "Orbit Nine, season 1": tuple(f"series3-{number:02}" for number in range(1, 7)),
    "Films for a long night": tuple(f"film{number}" for number in range(1, 9)),
}
_QUEUE: Final = ("film5", "series2-01", "series2-02", "film6")


async def make_playlists(stores: PlaylistStores) -> int:
    """Store the playlists that are not there, and return how many were made."""
    items = {item.video_id: item for item in await _catalog()}
    made = 0
    for number, (name, ids) in enumerate(_PLAYLISTS.items(), 1):
        playlist = Playlist(
            playlist_id=f"demo-{number}",
            name=name,
            items=[_stored(items[id]) for id in ids],
            created_by=AUTHOR,
        )

        async def work(tx: Transaction, playlist: Playlist = playlist) -> bool:
            if await tx.get(PLAYLIST, playlist_id=playlist.playlist_id) is not None:
                return False
            await tx.put(PLAYLIST, playlist)
            return True

        try:
            made += await stores.playlists.transact(work)
        except ConflictError:
            continue  # somebody gave the name to another playlist
    return made


async def prepare_robot(robot: DemoRobot) -> None:
    """Give the robot the titles of the catalog, and a queue."""
    robot.titles = DemoSource().titles()
    manifests = {item.video_id: item.manifest_url for item in await _catalog()}
    await robot.enqueue([manifests[id] for id in _QUEUE])


async def _catalog() -> list[CatalogItem]:
    return [item async for some, _ in DemoSource().items() for item in some]


def _stored(item: CatalogItem) -> PlaylistItem:
    return PlaylistItem(
        video_id=item.video_id,
        title=item.title,
        duration_seconds=UNSET if item.duration_seconds is None else item.duration_seconds,
        categories=item.categories or UNSET,
    )
