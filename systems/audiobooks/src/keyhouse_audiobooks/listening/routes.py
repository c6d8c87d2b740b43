"""Routes of playback, bookmarks, preferences, statistics, `me/` and `playlists`."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError, UsageError
from keyhouse.http import Response, Route
from keyhouse_audiobooks.accounts.permissions import PLAYLISTS, VIEW
from keyhouse_audiobooks.books.routes import with_covers
from keyhouse_audiobooks.errors import PositionError
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening import messages
from keyhouse_audiobooks.listening.messages import PlaybackState, ShownPlaylist, Statistics
from keyhouse_audiobooks.lists import Items, PageQuery, page_of
from keyhouse_audiobooks.messages import Data, Id
from keyhouse_audiobooks.records import Bookmark, Status
from keyhouse_audiobooks.route_table import api

__all__ = ["listening_routes", "playlist_routes"]


class ListeningHandlers:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    # Playback

    async def save(
        self, id: Id, body: messages.PositionBody, caller: Member
    ) -> Data[PlaybackState]:
        """Save a position. 409 with the newer state, if another device moved on since
        `based_on`."""
        return Data(await self._library(caller).listener.save(caller, id, body))

    async def state(self, id: Id, caller: Member) -> Data[PlaybackState]:
        """Return the place, the status and the percentage of a book."""
        return Data(await self._library(caller).listener.state(caller.subject, id))

    async def position(self, id: Id, caller: Member) -> Data[messages.PlaybackPosition]:
        """Return the place in a book."""
        state = await self._library(caller).listener.state(caller.subject, id)
        return Data(messages.PlaybackPosition(**asdict(state), segment_id=state.last_segment_id))

    async def set_status(
        self, id: Id, body: messages.StatusBody, caller: Member
    ) -> Data[PlaybackState]:
        """Set the status; it wins over the percentage until it is cleared."""
        listener = self._library(caller).listener
        return Data(await listener.set_status(caller.subject, id, body.status))

    async def clear_status(self, id: Id, caller: Member) -> Data[PlaybackState]:
        """Clear the status that was set: it follows the percentage again."""
        return Data(await self._library(caller).listener.set_status(caller.subject, id, UNSET))

    async def events(
        self, id: Id, query: PageQuery, caller: Member
    ) -> Data[Items[messages.ShownEvent]]:
        """List the listener's playback events of a book, the newest first. The list may be long: it
        has a cursor, and no offset."""
        if query.offset:
            raise UsageError("This list has no offset: continue with its cursor.")
        return Data(await self._library(caller).listener.events(caller.subject, id, query))

    # Lists

    async def of_status(
        self, status: Status, query: PageQuery, caller: Member, root: str
    ) -> Data[Items[messages.ListenedBook]]:
        """List the listener's books of a status, the last played first."""
        listener = self._library(caller).listener
        states = await listener.of_status(caller.subject, status)
        listed = page_of(await listener.with_books(states), query)
        with_covers(root, [each.book for each in listed.items])
        return Data(listed)

    async def resume(
        self, query: PageQuery, caller: Member, root: str
    ) -> Data[messages.ResumeList]:
        """List the books in progress, the last played first, and the next books of series."""
        library = self._library(caller)
        states = await library.listener.of_status(caller.subject, "in_progress")
        started = await library.listener.with_books(states)
        following = await library.books.by_ids(
            await library.listener.next_in_series(caller.subject)
        )
        listed = page_of(started, query)
        with_covers(root, [*(each.book for each in listed.items), *following])
        return Data(messages.ResumeList(**asdict(listed), next_in_series=following))

    # Bookmarks

    async def bookmarks(self, id: Id, query: PageQuery, caller: Member) -> Data[Items[Bookmark]]:
        """List the listener's bookmarks of a book."""
        marks = await self._library(caller).listener.bookmarks(caller.subject, id)
        return Data(page_of(marks, query))

    async def add_bookmark(
        self, id: Id, body: messages.BookmarkBody, caller: Member
    ) -> Response[Data[Bookmark]]:
        """Add a bookmark."""
        mark = await self._library(caller).listener.add_bookmark(caller.subject, id, body)
        return Response(Data(mark), 201)

    async def bookmark(self, id: Id, bookmark_id: Id, caller: Member) -> Data[Bookmark]:
        """Return one bookmark."""
        listener = self._library(caller).listener
        return Data(await listener.bookmark(caller.subject, id, bookmark_id))

    async def change_bookmark(
        self, id: Id, bookmark_id: Id, body: messages.BookmarkPatch, caller: Member
    ) -> Data[Bookmark]:
        """Change a bookmark."""
        listener = self._library(caller).listener
        return Data(await listener.change_bookmark(caller.subject, id, bookmark_id, body))

    async def delete_bookmark(self, id: Id, bookmark_id: Id, caller: Member) -> None:
        """Delete a bookmark."""
        await self._library(caller).listener.delete_bookmark(caller.subject, id, bookmark_id)

    # Preferences

    async def preferences(
        self, query: PageQuery, caller: Member
    ) -> Data[Items[messages.ShownPreference]]:
        """List the listener's preferences."""
        preferences = await self._library(caller).preferences.all(caller.subject)
        return Data(page_of(preferences, query))

    async def preference(self, key: str, caller: Member) -> Data[Any]:
        """Return a preference: any JSON value."""
        return Data(await self._library(caller).preferences.get(caller.subject, key))

    async def put_preference(self, key: str, body: Any, caller: Member) -> Data[Any]:
        """Put a preference: any JSON value, bare."""
        await self._library(caller).preferences.put(caller.subject, key, body)
        return Data(body)

    async def delete_preference(self, key: str, caller: Member) -> None:
        """Delete a preference."""
        await self._library(caller).preferences.delete(caller.subject, key)

    # Statistics

    async def book_statistics(self, id: Id, caller: Member) -> Data[Statistics]:
        """Return plays and listened seconds of a book."""
        return Data(await self._library(caller).listener.of_book(id))

    async def work_statistics(self, id: Id, caller: Member) -> Data[Statistics]:
        """Return plays and listened seconds of a work: the sum of its books."""
        return Data(await self._library(caller).listener.of_work(id))

    async def my_statistics(self, caller: Member) -> Data[Statistics]:
        """Return plays and listened seconds of the signed-in listener."""
        return Data(await self._library(caller).listener.of_user(caller.subject))


def listening_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = ListeningHandlers(libraries)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    at = {"segment_id": "01J00000000000000000000001", "position_seconds": 252}
    preference = "/preferences/{key}"
    table: dict[str, Route] = {
        "me_continue": api.get("/me/continue", on.resume, scope=VIEW),
        "me_status": api.get("/me/{status}", on.of_status, scope=VIEW, problems=absent),
        "preferences": api.get("/preferences", on.preferences, scope=VIEW),
        "preference": api.get(preference, on.preference, scope=VIEW, problems=absent),
        "put_preference": api.put(
            preference, on.put_preference, scope=VIEW, problems=[ConflictError], example=1.25
        ),
        "delete_preference": api.delete(
            preference, on.delete_preference, scope=VIEW, problems=absent
        ),
        "stats_book": api.get("/stats/books/{id}", on.book_statistics, scope=VIEW, problems=absent),
        "stats_work": api.get("/stats/works/{id}", on.work_statistics, scope=VIEW, problems=absent),
        "stats_me": api.get("/stats/me", on.my_statistics, scope=VIEW),
    }
    for name in ("books", "audiobooks"):
        book, marks = f"/{name}/{{id}}", f"/{name}/{{id}}/bookmarks"
        one = f"{marks}/{{bookmark_id}}"
        table |= {
            f"{name}_save": api.post(
                f"{book}/position",
                on.save,
                scope=VIEW,
                problems=[NotFoundError, PositionError, ConflictError],
                example=at,
            ),
            f"{name}_position": api.get(
                f"{book}/position", on.position, scope=VIEW, problems=absent
            ),
            f"{name}_state": api.get(f"{book}/state", on.state, scope=VIEW, problems=absent),
            f"{name}_set_status": api.patch(
                f"{book}/status", on.set_status, scope=VIEW, problems=absent
            ),
            f"{name}_clear_status": api.delete(
                f"{book}/status", on.clear_status, scope=VIEW, problems=absent
            ),
            f"{name}_events": api.get(f"{book}/events", on.events, scope=VIEW, problems=absent),
            f"{name}_bookmarks": api.get(marks, on.bookmarks, scope=VIEW, problems=absent),
            f"{name}_add_bookmark": api.post(
                marks,
                on.add_bookmark,
                scope=VIEW,
                replies={201: Data[Bookmark]},
                problems=[NotFoundError, ConflictError],
                example=at,
            ),
            f"{name}_bookmark": api.get(one, on.bookmark, scope=VIEW, problems=absent),
            f"{name}_change_bookmark": api.patch(
                one, on.change_bookmark, scope=VIEW, problems=absent
            ),
            f"{name}_delete_bookmark": api.delete(
                one, on.delete_bookmark, scope=VIEW, problems=absent
            ),
        }
    return table


class PlaylistHandlers:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def list(self, query: PageQuery, caller: Member) -> Data[Items[ShownPlaylist]]:
        """List the member's playlists, and those of all."""
        playlists = self._library(caller).playlists
        listed = page_of(await playlists.visible(caller), query)
        return Data(listed.of(await playlists.show_all(listed.items)))

    async def create(
        self, body: messages.PlaylistBody, caller: Member
    ) -> Response[Data[ShownPlaylist]]:
        """Create a playlist. With `"user_id": null`, one for all, which needs an admin."""
        made = await self._library(caller).playlists.create(
            caller, body.name, body.user_id, body.book_ids
        )
        return Response(Data(made), 201)

    async def get(self, id: Id, caller: Member) -> Data[ShownPlaylist]:
        """Return a playlist with the ids of its books, in order."""
        playlists = self._library(caller).playlists
        return Data(await playlists.show(await playlists.get(caller, id)))

    async def rename(
        self, id: Id, body: messages.PlaylistPatch, caller: Member
    ) -> Data[ShownPlaylist]:
        """Rename a playlist."""
        return Data(await self._library(caller).playlists.rename(caller, id, body.name))

    async def delete(self, id: Id, caller: Member) -> None:
        """Delete a playlist."""
        await self._library(caller).playlists.delete(caller, id)

    async def add(self, id: Id, body: messages.BookIdsBody, caller: Member) -> Data[ShownPlaylist]:
        """Append books; those that are there keep their places."""
        return Data(await self._library(caller).playlists.add(caller, id, body.book_ids))

    async def remove(
        self, id: Id, body: messages.BookIdsBody, caller: Member
    ) -> Data[ShownPlaylist]:
        """Remove books."""
        return Data(await self._library(caller).playlists.remove(caller, id, body.book_ids))

    async def remove_one(self, id: Id, book_id: Id, caller: Member) -> Data[ShownPlaylist]:
        """Remove a book."""
        return Data(await self._library(caller).playlists.remove(caller, id, [book_id]))

    async def reorder(
        self, id: Id, body: messages.BookIdsBody, caller: Member
    ) -> Data[ShownPlaylist]:
        """Put the same books into another order."""
        return Data(await self._library(caller).playlists.reorder(caller, id, body.book_ids))


def playlist_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = PlaylistHandlers(libraries)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    one, books = "/playlists/{id}", "/playlists/{id}/books"
    return {
        "playlists": api.get("/playlists", on.list, scope=VIEW),
        "create_playlist": api.post(
            "/playlists",
            on.create,
            scope=PLAYLISTS,
            replies={201: Data[ShownPlaylist]},
            problems=[ConflictError],
        ),
        "playlist": api.get(one, on.get, scope=VIEW, problems=absent),
        "replace_playlist": api.put(one, on.rename, scope=PLAYLISTS, problems=absent),
        "rename_playlist": api.patch(one, on.rename, scope=PLAYLISTS, problems=absent),
        "delete_playlist": api.delete(one, on.delete, scope=PLAYLISTS, problems=absent),
        "playlist_add": api.post(books, on.add, scope=PLAYLISTS, problems=absent),
        "playlist_remove": api.delete(books, on.remove, scope=PLAYLISTS, problems=absent),
        "playlist_remove_one": api.delete(
            f"{books}/{{book_id}}", on.remove_one, scope=PLAYLISTS, problems=absent
        ),
        "playlist_reorder": api.post(
            f"{one}/reorder", on.reorder, scope=PLAYLISTS, problems=absent
        ),
    }
