"""Playlists and their books. Every change writes the playlist's own row, so that two of them at
once do not mix their orders."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from keyhouse.errors import AccessError, NotFoundError, RecordError
from keyhouse.http import report_read
from keyhouse.store import Transaction
from keyhouse_audiobooks.accounts.permissions import ADMIN
from keyhouse_audiobooks.library import Library, Member, valid_body
from keyhouse_audiobooks.limits import PLAYLIST_BOOKS_MAX, PLAYLISTS_MAX
from keyhouse_audiobooks.listening.messages import ShownPlaylist
from keyhouse_audiobooks.records import Playlist, is_listed
from keyhouse_audiobooks.schema import (
    BOOK,
    ITEMS_OF_BOOK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PLAYLISTS_OF_USER,
    SHARED_PLAYLISTS,
)

__all__ = ["Playlists", "is_owned"]


class Playlists:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.store = library.store

    async def visible(self, member: Member) -> list[Playlist]:
        """Return the member's playlists, and those of all."""
        own = self.store.scan(PLAYLIST, by=PLAYLISTS_OF_USER, user_id=member.subject)
        shared = self.store.scan(PLAYLIST, by=SHARED_PLAYLISTS)
        return [entry.record for entries in (own, shared) async for entry in entries]

    async def holding(self, book_id: str) -> set[str]:
        """Return the ids of the playlists of all users that have a book."""
        rows = self.store.scan(PLAYLIST_ITEM, by=ITEMS_OF_BOOK, book_id=book_id)
        return {entry.fields["playlist_id"] async for entry in rows}

    async def get(self, member: Member, id: str) -> Playlist:
        """Return a playlist that the member may see; NotFoundError otherwise."""
        playlist = (await self.library.require(PLAYLIST, id=id)).record
        if playlist.user_id not in (None, member.subject):
            raise NotFoundError("There is no such playlist.", id=id)
        return playlist

    async def changeable(self, member: Member, id: str) -> Playlist:
        playlist = await self.get(member, id)
        _check_owner(member, playlist.user_id)
        return playlist

    async def show(self, playlist: Playlist) -> ShownPlaylist:
        [shown] = await self.show_all([playlist])
        return shown

    async def show_all(self, playlists: Sequence[Playlist]) -> list[ShownPlaylist]:
        """Return playlists as they are sent, with the ids of their books. The books of all of them
        are read at once."""
        items = [await self._items(each.id) for each in playlists]
        listed = set(await self._listed([*dict.fromkeys(id for ids in items for id in ids)]))
        return [
            ShownPlaylist(**asdict(playlist), book_ids=[id for id in ids if id in listed])
            for playlist, ids in zip(playlists, items, strict=True)
        ]

    async def create(
        self,
        member: Member,
        name: str,
        user_id: UnsetType | None,
        book_ids: Sequence[str],
    ) -> ShownPlaylist:
        owner = member.subject if user_id is UNSET else None
        _check_owner(member, owner)
        playlist = Playlist(id=self.library.new_id(), name=name, user_id=owner)

        async def work(tx: Transaction) -> None:
            await self._check_room(tx, owner)
            await tx.put(PLAYLIST, playlist, expect=None)
            await self._write(tx, playlist.id, [], list(dict.fromkeys(book_ids)))

        await self._transact(work)
        return await self.show(await self.get(member, playlist.id))

    async def rename(self, member: Member, id: str, name: str) -> ShownPlaylist:
        await self.changeable(member, id)

        async def work(tx: Transaction) -> None:
            playlist = await tx.get(PLAYLIST, id=id)
            if playlist is not None:
                await tx.put(PLAYLIST, replace(playlist, name=name))

        await self._transact(work)
        return await self.show(await self.get(member, id))

    async def delete(self, member: Member, id: str) -> None:
        await self.changeable(member, id)
        await self.store.delete(PLAYLIST, id=id)

    async def add(self, member: Member, id: str, book_ids: Sequence[str]) -> ShownPlaylist:
        """Append books; those that the playlist has already keep their places."""

        def more(now: list[str]) -> list[str]:
            listed = set(now)
            return [*now, *(each for each in book_ids if each not in listed)]

        return await self._change(member, id, more)

    async def remove(self, member: Member, id: str, book_ids: Sequence[str]) -> ShownPlaylist:
        removed = set(book_ids)

        def rest(now: list[str]) -> list[str]:
            listed = set(now)
            if absent := [each for each in book_ids if each not in listed]:
                raise NotFoundError("The playlist does not have these books.", book_ids=absent)
            return [each for each in now if each not in removed]

        return await self._change(member, id, rest)

    async def reorder(self, member: Member, id: str, book_ids: Sequence[str]) -> ShownPlaylist:
        """Put the books into another order; RecordError unless they are the same books."""
        listed = set(await self._listed(await self._items(id)))

        def ordered(now: list[str]) -> list[str]:
            shown = [each for each in now if each in listed]
            if sorted(book_ids) != sorted(shown):
                raise RecordError("The new order must have the same books, each once.")
            return [*book_ids, *(each for each in now if each not in listed)]

        return await self._change(member, id, ordered)

    async def _change(
        self, member: Member, id: str, change: Callable[[list[str]], list[str]]
    ) -> ShownPlaylist:
        await self.changeable(member, id)

        async def work(tx: Transaction) -> None:
            playlist = await tx.get(PLAYLIST, id=id)
            if playlist is None:
                raise NotFoundError("There is no such playlist.", id=id)
            await tx.put(PLAYLIST, playlist)
            entries = self.store.scan(PLAYLIST_ITEM, playlist_id=id)
            now = [(each.fields["position"], each.record) async for each in entries]
            await self._write(tx, id, now, change([book for _, book in now]))

        await self._transact(work)
        return await self.show(await self.get(member, id))

    async def _write(
        self, tx: Transaction, id: str, before: list[tuple[int, str]], after: list[str]
    ) -> None:
        if len(after) > max(PLAYLIST_BOOKS_MAX, len(before)):
            raise RecordError(
                "The playlist would have too many books: start another one.",
                limit=PLAYLIST_BOOKS_MAX,
            )
        report_read(len(after), 0)  # a change of all places costs like a read of them
        stored = dict(before)
        for position, book_id in enumerate(after, 1):
            if stored.pop(position, None) != book_id:
                await tx.put(PLAYLIST_ITEM, book_id, playlist_id=id, position=position)
        for position in stored:
            await tx.delete(PLAYLIST_ITEM, playlist_id=id, position=position)

    async def _check_room(self, tx: Transaction, owner: str | None) -> None:
        check, noun = self.library.check_room, "playlists"
        if owner is None:
            await check(tx, SHARED_PLAYLISTS, PLAYLISTS_MAX, noun=noun)
        else:
            await check(tx, PLAYLISTS_OF_USER, PLAYLISTS_MAX, noun=noun, user_id=owner)

    async def _transact(self, work: Any) -> None:
        with valid_body():
            await self.store.transact(work)

    async def _items(self, id: str) -> list[str]:
        return [each.record async for each in self.store.scan(PLAYLIST_ITEM, playlist_id=id)]

    async def _listed(self, book_ids: Sequence[str]) -> list[str]:
        rows = await self.store.get_many(BOOK, [{"id": id} for id in book_ids])
        return [
            id
            for id, book in zip(book_ids, rows, strict=True)
            if book is not None and is_listed(book)
        ]


def _check_owner(member: Member, owner: str | None) -> None:
    if not is_owned(member, owner):
        raise AccessError("Only admins change playlists that all users share.")


def is_owned(member: Member, owner: str | None) -> bool:
    """Return whether a playlist of this owner is the member's to change: one that all users share,
    without an owner, is the admins'."""
    return ADMIN in member.roles if owner is None else owner == member.subject
