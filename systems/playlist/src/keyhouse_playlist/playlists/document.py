"""The document of a playlist as it is stored, whatever program wrote it."""

from typing import Any

import msgspec
from msgspec import UNSET

from keyhouse.engine import Row
from keyhouse_playlist.names import printable_title, without_controls
from keyhouse_playlist.playlists.messages import ItemBody
from keyhouse_playlist.stores import foreign_json

__all__ = ["StoredPlaylist", "printable_item", "stored_playlist"]


class _AnyItem(msgspec.Struct):
    video_id: str
    title: str | None = None
    duration_seconds: int | None = None


class StoredPlaylist(msgspec.Struct, frozen=True):
    """A document as it is stored, whatever program wrote it."""

    id: str
    document: dict[str, Any]
    revision: int
    is_read_only: bool

    @property
    def name(self) -> str:
        return str(self.document.get("name", ""))

    @property
    def items(self) -> list[_AnyItem]:
        """The items that have an id, whatever else they have."""
        found = self.document.get("items")
        items = []
        for each in found if isinstance(found, list) else ():
            if isinstance(each, dict) and isinstance(each.get("video_id"), str):
                title, seconds = each.get("title"), each.get("duration_seconds")
                items.append(
                    _AnyItem(
                        each["video_id"],
                        printable_title(title) if isinstance(title, str) else None,
                        seconds if type(seconds) is int else None,
                    )
                )
        return items

    @property
    def bodies(self) -> list[ItemBody]:
        """The items as a request has them."""
        return [
            ItemBody(item.video_id, item.title or UNSET, item.duration_seconds or UNSET)
            for item in self.items
        ]


def printable_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is shown: without control characters in its title and categories."""
    title, categories = item.get("title"), item.get("categories")
    if isinstance(title, str):
        item = {**item, "title": printable_title(title)}
    if isinstance(categories, list):
        shown = [without_controls(each) if isinstance(each, str) else each for each in categories]
        item = {**item, "categories": shown}
    return item


def stored_playlist(row: Row, id: str) -> StoredPlaylist | None:
    """Return the document of a row, or None if there is no document in it. `id` is that of its
    key."""
    value = foreign_json(row.value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    own = value.get("playlist_id")
    return StoredPlaylist(own if isinstance(own, str) else id, value, row.revision, False)
