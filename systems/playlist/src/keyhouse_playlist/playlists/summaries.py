"""Summaries of all playlists, for the list.

A summary needs the number of items and their duration, which only the document has. So that a list
does not decode all documents, each process remembers the summary of each revision: a list reads
keys and revisions, and only documents that changed since the last one. A new catalog has new
durations: then all are read again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from keyhouse.engine import Row
from keyhouse.errors import DataError, NewerError
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.playlists.document import StoredPlaylist, stored_playlist
from keyhouse_playlist.playlists.messages import PlaylistSummary
from keyhouse_playlist.schema import PLAYLIST, Playlist
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["PlaylistSummaries"]

Durations = Mapping[str, int | None]


class PlaylistSummaries:
    def __init__(self, stores: PlaylistStores, catalog: CatalogAccess) -> None:
        self._store = stores.playlists
        self._catalog = catalog
        self._record = self._store.binding.record(PLAYLIST)
        self._template = self._record.template
        self._durations: Durations = {}
        self._known: dict[str, tuple[int, PlaylistSummary | None]] = {}

    async def all(self) -> list[PlaylistSummary]:
        """Return the summaries of all documents that can be read, in the order of their keys."""
        durations = await self._catalog.durations()
        if durations is not self._durations:
            self._durations, self._known = durations, {}
        known, current, changed = self._known, {}, []
        async for row in self._store.row_scan(self._template.span({}), keys_only=True):
            if self._template.parse(row.key) is None:
                continue  # the index
            found = known.get(row.key)
            if found is not None and found[0] == row.revision:
                current[row.key] = found
            else:
                current[row.key] = (0, None)  # keeps the order
                changed.append(row.key)
        async for rows in self._store.rows_in_pages(changed):
            for each in rows:
                if each is not None:
                    current[each.key] = (each.revision, self.summary(each, durations))
        if known is self._known:
            self._known = current
        return [summary for _, summary in current.values() if summary is not None]

    def summary(self, row: Row, durations: Durations) -> PlaylistSummary | None:
        """Return the summary of a document; None if it is not one."""
        try:
            return _summary_of(self._record.decode(row.value, row.key), durations)
        except NewerError:
            fields = self._template.parse(row.key)
            stored = None if fields is None else stored_playlist(row, str(fields["playlist_id"]))
            return None if stored is None else _summary_of_newer(stored, durations)
        except DataError:
            return None


def _summary_of(playlist: Playlist, durations: Durations) -> PlaylistSummary:
    return PlaylistSummary(
        playlist_id=playlist.playlist_id,
        name=playlist.name,
        created_by=playlist.created_by,
        item_count=len(playlist.items),
        total_duration_seconds=_total(playlist.items, durations),
        created_at=playlist.created_at,
        updated_at=playlist.updated_at,
        forked_from=playlist.forked_from,
    )


def _summary_of_newer(stored: StoredPlaylist, durations: Durations) -> PlaylistSummary:
    """Return the summary of a document of a newer version."""

    def text(name: str) -> str:
        value = stored.document.get(name)
        return value if isinstance(value, str) else ""

    return PlaylistSummary(
        playlist_id=stored.id,
        name=stored.name,
        created_by=text("created_by") or text("owner"),
        item_count=len(stored.items),
        total_duration_seconds=_total(stored.items, durations),
        created_at=text("created_at"),
        updated_at=text("updated_at"),
        read_only=True,
    )


def _total(items: Iterable[Any], durations: Durations) -> int:
    return sum(durations.get(item.video_id) or item.duration_seconds or 0 for item in items)
