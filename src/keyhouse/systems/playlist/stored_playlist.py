"""The document of a playlist as it is stored, whatever program wrote it."""

from typing import Any

import msgspec

from keyhouse.engine import Row
from keyhouse.systems.playlist.foreign_json import foreign_json
from keyhouse.systems.playlist.names import printable_title, without_controls

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


def printable_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is shown: without control characters in its title and categories."""
    title, categories = item.get("title"), item.get("categories")
    if isinstance(title, str):
        item = {**item, "title": printable_title(title)}
    if isinstance(categories, list):
        shown = [without_controls(each) if isinstance(each, str) else each for each in categories]
        item = {**item, "categories": shown}
    return item


def stored_playlist(row: Row) -> StoredPlaylist | None:
    """Return the document of a row, or None if there is no document in it."""
    value = foreign_json(row.value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    id = value.get("playlist_id")
    if not isinstance(id, str):
        id = row.key.rpartition("/")[2]
    return StoredPlaylist(id, value, row.revision, False)
