"""Routes of `playlists`."""

from collections.abc import Mapping
from typing import Any

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError
from keyhouse.http import Response, Route
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.library import Data, Items, Member, data, items, page_of
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import PLAYLISTS, VIEW
from keyhouse.systems.audiobooks.playlists import Playlists
from keyhouse.systems.audiobooks.routes.table import CREATED, api

__all__ = ["playlist_routes"]

Json = dict[str, Any]


class PlaylistHandlers:
    def __init__(self, playlists: Playlists) -> None:
        self._playlists = playlists

    async def list(self, query: messages.PageQuery, caller: Member) -> Data[Items[Json]]:
        """List the member's playlists, and those of all."""
        found = await self._playlists.visible(caller)
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        return items(await self._playlists.show_all(page), total=len(found), cursor=cursor)

    async def create(self, body: messages.PlaylistBody, caller: Member) -> Response[Data[Json]]:
        """Create a playlist. With `"user_id": null`, one for all, which needs an admin."""
        made = await self._playlists.create(caller, body.name, body.user_id, body.book_ids)
        return Response(data(await self._playlists.show(made)), 201)

    async def get(self, id: Id, caller: Member) -> Data[Json]:
        """Return a playlist with the ids of its books, in order."""
        return data(await self._playlists.show(await self._playlists.get(caller, id)))

    async def rename(self, id: Id, body: messages.PlaylistPatch, caller: Member) -> Data[Json]:
        """Rename a playlist."""
        changed = await self._playlists.rename(caller, id, body.name)
        return data(await self._playlists.show(changed))

    async def delete(self, id: Id, caller: Member) -> None:
        """Delete a playlist."""
        await self._playlists.delete(caller, id)

    async def add(self, id: Id, body: messages.BookIdsBody, caller: Member) -> Data[Json]:
        """Append books; those that are there keep their places."""
        changed = await self._playlists.add(caller, id, body.book_ids)
        return data(await self._playlists.show(changed))

    async def remove(self, id: Id, body: messages.BookIdsBody, caller: Member) -> Data[Json]:
        """Remove books."""
        changed = await self._playlists.remove(caller, id, body.book_ids)
        return data(await self._playlists.show(changed))

    async def remove_one(self, id: Id, book_id: Id, caller: Member) -> Data[Json]:
        """Remove a book."""
        changed = await self._playlists.remove(caller, id, [book_id])
        return data(await self._playlists.show(changed))

    async def reorder(self, id: Id, body: messages.BookIdsBody, caller: Member) -> Data[Json]:
        """Put the same books into another order."""
        changed = await self._playlists.reorder(caller, id, body.book_ids)
        return data(await self._playlists.show(changed))


def playlist_routes(playlists: Playlists) -> Mapping[str, Route]:
    on = PlaylistHandlers(playlists)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    one = "/playlists/{id}"
    return {
        "playlists": api.get("/playlists", on.list, scope=VIEW),
        "create_playlist": api.post(
            "/playlists", on.create, scope=PLAYLISTS, replies=CREATED, problems=[ConflictError]
        ),
        "playlist": api.get(one, on.get, scope=VIEW, problems=absent),
        "replace_playlist": api.put(one, on.rename, scope=PLAYLISTS, problems=absent),
        "rename_playlist": api.patch(one, on.rename, scope=PLAYLISTS, problems=absent),
        "delete_playlist": api.delete(one, on.delete, scope=PLAYLISTS, problems=absent),
        "playlist_add": api.post(f"{one}/books", on.add, scope=PLAYLISTS, problems=absent),
        "playlist_remove": api.delete(f"{one}/books", on.remove, scope=PLAYLISTS, problems=absent),
        "playlist_remove_one": api.delete(
            f"{one}/books/{{book_id}}", on.remove_one, scope=PLAYLISTS, problems=absent
        ),
        "playlist_reorder": api.post(
            f"{one}/reorder", on.reorder, scope=PLAYLISTS, problems=absent
        ),
    }
