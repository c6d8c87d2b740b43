"""Marathons of saved playlists: their items from the store, with titles from the catalog."""

import secrets
from string import ascii_uppercase

import msgspec
from msgspec import UNSET

from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.limits import MARATHON_SOURCES_MAX
from keyhouse_playlist.playlists.messages import ItemBody, MarathonBody
from keyhouse_playlist.playlists.mixing import Source, build_marathon
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.schema import Playlist

__all__ = ["BuiltMarathon", "MarathonEntry", "Marathons"]


class MarathonEntry(msgspec.Struct, frozen=True):
    """An item of a marathon. `label` is that of its source."""

    video_id: str
    title: str | None
    duration_seconds: int | None
    label: str


class BuiltMarathon(msgspec.Struct, frozen=True):
    """`seed` is the given one, or a random one."""

    items: list[MarathonEntry]
    warnings: list[str]
    seed: str


class Marathons:
    def __init__(self, playlists: SavedPlaylists, catalog: CatalogAccess) -> None:
        self._playlists = playlists
        self._catalog = catalog

    async def build(self, body: MarathonBody) -> BuiltMarathon:
        """Return the items in order. Raises NotFoundError or PatternError."""
        sources: list[Source[MarathonEntry]] = []
        for number, source in enumerate(body.sources):
            entries: list[MarathonEntry] = []
            if len(body.sources) <= MARATHON_SOURCES_MAX:  # else it is rejected below
                label = source.label or ascii_uppercase[number]
                entries = await self._entries(source.playlist_id, label.strip().upper())
            sources.append(Source(entries, source.label))
        seed = secrets.token_hex(4) if body.shuffle_seed is None else str(body.shuffle_seed)
        marathon = build_marathon(
            sources,
            body.method,
            seed=seed,
            pattern=body.interleave_pattern,
            preserve_episode_order=body.preserve_episode_order,
        )
        return BuiltMarathon(marathon.items, marathon.warnings, seed)

    async def save(self, name: str, body: MarathonBody, member: ChannelMember) -> Playlist:
        """Save a marathon as a playlist."""
        marathon = await self.build(body)
        items = [ItemBody(item.video_id, item.title or UNSET) for item in marathon.items]
        return await self._playlists.create(name, items, member)

    async def _entries(self, playlist_id: str, label: str) -> list[MarathonEntry]:
        items = (await self._playlists.read(playlist_id)).items
        known = await self._catalog.get_many([item.video_id for item in items])
        entries = []
        for item in items:
            found = known.get(item.video_id, item)
            entry = MarathonEntry(item.video_id, found.title, found.duration_seconds, label)
            entries.append(entry)
        return entries
