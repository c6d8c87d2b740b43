"""Saved playlists: list, read, create, change, delete, fork.

Other programs write the same documents. One of a newer version is shown and never changed; one that
cannot be read at all is left out.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.errors import (
    CallerError,
    ConflictError,
    DataError,
    KeyFieldError,
    NewerError,
    NotFoundError,
    UniqueError,
    UnreadableError,
)
from keyhouse.http import Conditions
from keyhouse.schema import BoundSummary
from keyhouse.search import fold
from keyhouse.store import Entry, Transaction
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.errors import (
    NameTakenError,
    NewerDocumentError,
    PlaylistsFullError,
    RoleError,
)
from keyhouse_playlist.limits import PLAYLISTS_MAX
from keyhouse_playlist.names import (
    checked_categories,
    checked_name,
    checked_title,
    comparable_name,
    without_controls,
)
from keyhouse_playlist.playlists.document import StoredPlaylist, printable_item, stored_playlist
from keyhouse_playlist.playlists.messages import ItemBody, PlaylistSummary
from keyhouse_playlist.playlists.summaries import PlaylistSummaries
from keyhouse_playlist.schema import PLAYLIST, PLAYLIST_INDEX, PLAYLIST_NAME, Playlist, PlaylistItem
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["SavedPlaylists"]

_NUMBERED_NAMES_MAX: Final = 100


class SavedPlaylists:
    def __init__(self, stores: PlaylistStores, catalog: CatalogAccess) -> None:
        self._stores = stores
        self._store = stores.playlists
        self._catalog = catalog
        self._index = self._store.binding.derived(PLAYLIST_INDEX, BoundSummary)
        self._summaries = PlaylistSummaries(stores, catalog)

    # Reading

    async def listed(
        self, *, created_by: ChannelMember | None, search: str
    ) -> list[PlaylistSummary]:
        """Return the playlists, the one that was changed last first."""
        summaries = await self._summaries.all()
        wanted = fold(search.strip())
        chosen = [
            each
            for each in summaries
            if wanted in fold(each.name)
            and (created_by is None or created_by.is_named(each.created_by))
        ]
        chosen.sort(key=lambda each: each.playlist_id)
        chosen.sort(key=lambda each: each.updated_at, reverse=True)
        return chosen

    async def read(self, id: str) -> StoredPlaylist:
        """Return a document, of any version. Raises NotFoundError without one."""
        row = await self._store.row(self._key(id))
        stored = None if row is None else stored_playlist(row, id)
        if stored is None:
            raise _not_found(id)
        try:
            await self._store.get(PLAYLIST, playlist_id=id)
        except NewerError:
            return msgspec.structs.replace(stored, is_read_only=True)
        except UnreadableError:
            raise _not_found(id) from None
        return stored

    async def shown(self, stored: StoredPlaylist) -> dict[str, Any]:
        """Return a document with title and duration of its items from the catalog."""
        items = stored.document.get("items")
        known = await self._catalog.get_many([item.video_id for item in stored.items])
        shown = []
        for item in items if isinstance(items, list) else ():
            entry = known.get(item.get("video_id", "")) if isinstance(item, dict) else None
            if entry is not None:
                item = {
                    **item,
                    "title": entry.title,
                    "duration_seconds": entry.duration_seconds,
                    "thumbnail_url": entry.thumbnail_url,
                }
            elif isinstance(item, dict):
                item = printable_item(item)
            shown.append(item)
        read_only = {"read_only": True} if stored.is_read_only else {}
        return {**stored.document, "playlist_id": stored.id, "items": shown, **read_only}

    # Writing

    async def create(
        self,
        name: str,
        items: Sequence[ItemBody],
        member: ChannelMember,
        *,
        forked_from: str | UnsetType = UNSET,
    ) -> Playlist:
        """Store a new playlist. Raises NameTakenError, or PlaylistsFullError at the limit."""
        playlist = Playlist(
            playlist_id=str(uuid4()),
            name=checked_name(name),
            items=await self._items(items),
            created_by=member.username,
            forked_from=forked_from,
        )

        async def work(tx: Transaction) -> None:
            await self._check_room(tx)
            await tx.put(PLAYLIST, playlist)

        await self._check_name(playlist.name)
        await self._write(work)
        return playlist

    async def replace(
        self,
        id: str,
        name: str | UnsetType,
        items: Sequence[ItemBody] | UnsetType,
        member: ChannelMember,
        conditions: Conditions,
    ) -> StoredPlaylist:
        """Change a playlist; what is UNSET stays."""
        changed = None if isinstance(items, UnsetType) else await self._items(items)

        async def work(tx: Transaction) -> None:
            playlist, revision = await self._owned(tx, id, member)
            conditions.check(revision)
            if changed is not None:
                playlist = msgspec.structs.replace(playlist, items=changed)
            if not isinstance(name, UnsetType):
                playlist = msgspec.structs.replace(playlist, name=checked_name(name))
                await self._check_name(playlist.name, of=id)
            await tx.put(PLAYLIST, playlist)

        await self._write(work)
        return await self.read(id)

    async def delete(self, id: str, member: ChannelMember, conditions: Conditions) -> None:
        async def work(tx: Transaction) -> None:
            _, revision = await self._owned(tx, id, member)
            conditions.check(revision)
            await tx.delete(PLAYLIST, playlist_id=id)

        await self._write(work)

    async def fork(self, id: str, name: str | None, member: ChannelMember) -> Playlist:
        """Copy a playlist. Without a name, the copy has the name of the original and a number."""
        original = await self.read(id)
        if name is None:
            name = await self.free_name(f"{without_controls(original.name)} (copy", ")")
        if name is None:
            raise NameTakenError("There are too many copies of this playlist: give a name.")
        return await self.create(name, original.bodies, member, forked_from=id)

    async def free_name(self, start: str, end: str = "") -> str | None:
        """Return a name that no playlist has, with a number if it needs one; None if there are too
        many."""
        taken = {comparable_name(each.name) for each in await self._summaries.all()}
        names = (f"{start}{f' {n}' if n > 1 else ''}{end}" for n in range(1, _NUMBERED_NAMES_MAX))
        return next((name for name in names if comparable_name(name) not in taken), None)

    async def repair_index(self) -> int:
        """Make the index from the documents if it is missing or no map of playlists, and give each
        document its name row; return how many documents were written for it.

        Other programs write documents without either. An index of a newer version is left as it is.
        """
        key = self._index.template.build({})
        row = await self._store.row(key)
        lacks_entries = self._index.needs_rebuild(None if row is None else row.value)
        listed = self._index.members(None if row is None else row.value)
        repaired = 0
        async for entry in self._store.scan(PLAYLIST, unreadable="skip"):
            has_name = await self._store.row(self._name_key(entry.record.name)) is not None
            if lacks_entries or not has_name or entry.record.playlist_id not in listed:
                repaired += await self._rewrite(entry)
                lacks_entries = False
        return repaired

    async def _rewrite(self, entry: Entry[Playlist]) -> bool:
        async def work(tx: Transaction) -> None:
            stored = await tx.entry(PLAYLIST, playlist_id=entry.record.playlist_id)
            if stored is not None:
                await tx.rewrite(PLAYLIST, stored)

        try:
            await self._store.transact(work)
        except (DataError, ConflictError, CallerError):
            return False  # two documents of one name, or a newer index: they stay as they are
        return True

    # Parts

    async def _items(self, items: Sequence[ItemBody]) -> list[PlaylistItem]:
        """Return the items with what the catalog knows of them. An unknown id may be saved. Raises
        RecordError if its title or a category has control characters."""
        known = await self._catalog.get_many([item.video_id for item in items])
        stored = []
        for item in items:
            entry = known.get(item.video_id)
            if entry is None:
                stored.append(
                    PlaylistItem(
                        video_id=item.video_id,
                        title=checked_title(item.title, video_id=item.video_id),
                        duration_seconds=item.duration_seconds,
                        categories=checked_categories(item.categories, video_id=item.video_id),
                    )
                )
                continue
            stored.append(
                PlaylistItem(
                    video_id=item.video_id,
                    title=entry.title,
                    duration_seconds=(
                        UNSET if entry.duration_seconds is None else entry.duration_seconds
                    ),
                    categories=entry.categories or UNSET,
                )
            )
        return stored

    async def _owned(self, tx: Transaction, id: str, member: ChannelMember) -> tuple[Playlist, int]:
        """Return a playlist that the member may change, with its revision."""
        self._key(id)
        try:
            entry = await tx.entry(PLAYLIST, playlist_id=id)
        except NewerError as error:
            raise _newer(id) from error
        except UnreadableError:
            entry = None
        if entry is None:
            raise _not_found(id)
        if not member.is_admin and not member.is_named(entry.record.created_by):
            raise RoleError(
                "Only admins may change the playlists of others: fork it.", role=member.role
            )
        return entry.record, entry.revision

    async def _check_name(self, name: str, *, of: str | None = None) -> None:
        """Raise NameTakenError if another document has the name, whatever program wrote it, and
        PlaylistsFullError if there is no room for a new one.

        Documents of other programs have no row at `names/…` until this service has met them, so all
        documents are asked. Documents of this service also have that row, which is written in the
        same commit: between them the check has no race.
        """
        wanted = comparable_name(name)
        known = await self._summaries.all()
        named = {each.playlist_id for each in known if comparable_name(each.name) == wanted}
        if named and of not in named:
            raise _name_taken()
        if of is None and len(known) >= PLAYLISTS_MAX:
            raise _full()

    async def _check_room(self, tx: Transaction) -> None:
        row = await tx.row(self._index.template.build({}))
        if len(self._index.members(None if row is None else row[0])) >= PLAYLISTS_MAX:
            raise _full()

    async def _write(self, work: Callable[[Transaction], Awaitable[None]]) -> None:
        with _conflicts():
            await self._store.transact(work)

    def _key(self, id: str) -> str:
        try:
            return self._store.binding.record(PLAYLIST).template.build({"playlist_id": id})
        except KeyFieldError:
            raise _not_found(id) from None

    def _name_key(self, name: str) -> str:
        _, unique = self._store.binding.index(PLAYLIST, PLAYLIST_NAME)
        return unique.template.build({"name": name})


@contextmanager
def _conflicts() -> Any:
    """Translate the store's errors into those of this API."""
    try:
        yield
    except UniqueError:
        raise _name_taken() from None
    except NewerError as error:
        raise NewerDocumentError(
            "A newer program wrote the index of playlists: use that program to write."
        ) from error


def _full() -> PlaylistsFullError:
    return PlaylistsFullError(
        "This namespace has 2,000 playlists, the most it can have: delete one first.",
        limit=PLAYLISTS_MAX,
    )


def _name_taken() -> NameTakenError:
    return NameTakenError("Another playlist has this name.")


def _not_found(id: str) -> NotFoundError:
    return NotFoundError("There is no such playlist.", playlist_id=id)


def _newer(id: str) -> NewerDocumentError:
    return NewerDocumentError(
        "A newer program wrote this playlist: it is shown, and only that program can change it.",
        playlist_id=id,
    )
