"""Routes of playback, bookmarks, preferences, statistics and `me/`."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, to_builtins

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError, UsageError
from keyhouse.http import Response, Route
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.errors import PositionError
from keyhouse.systems.audiobooks.library import (
    Data,
    Items,
    Member,
    data,
    items,
    page_limit,
    page_of,
)
from keyhouse.systems.audiobooks.listening import Listener, PlaybackState, Statistics
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import VIEW
from keyhouse.systems.audiobooks.preferences import Preferences
from keyhouse.systems.audiobooks.records import Bookmark, Status
from keyhouse.systems.audiobooks.routes.table import CREATED, add_root, api
from keyhouse.systems.audiobooks.schema import BOOK, PLAYBACK

__all__ = ["listening_routes"]

Json = dict[str, Any]


class ListeningHandlers:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._store = listener.store
        self._preferences = Preferences(listener.library)

    # Playback

    async def save(
        self, id: Id, body: messages.PositionBody, caller: Member
    ) -> Data[PlaybackState]:
        """Save a position. 409 with the newer state, if another device moved on since
        `based_on`."""
        return data(await self._listener.save(caller, id, body))

    async def state(self, id: Id, caller: Member) -> Data[PlaybackState]:
        """Return the place, the status and the percentage of a book."""
        return data(await self._listener.state(caller.subject, id))

    async def position(self, id: Id, caller: Member) -> Data[Json]:
        """Return the place in a book."""
        state = await self._listener.state(caller.subject, id)
        return data({**to_builtins(state), "segment_id": state.last_segment_id})

    async def set_status(
        self, id: Id, body: messages.StatusBody, caller: Member
    ) -> Data[PlaybackState]:
        """Set the status; it wins over the percentage until it is cleared."""
        return data(await self._listener.set_status(caller.subject, id, body.status))

    async def clear_status(self, id: Id, caller: Member) -> Data[PlaybackState]:
        """Clear the status that was set: it follows the percentage again."""
        return data(await self._listener.set_status(caller.subject, id, UNSET))

    async def events(self, id: Id, query: messages.PageQuery, caller: Member) -> Data[Items[Json]]:
        """List the listener's playback events of a book, the newest first. The list may be long: it
        has a cursor, and no offset."""
        if query.offset:
            raise UsageError("This list has no offset: continue with its cursor.")
        await self._listener.books.get(id)
        page = await self._store.page(
            PLAYBACK,
            user_id=caller.subject,
            book_id=id,
            reverse=True,
            limit=page_limit(query.limit),
            cursor=query.cursor,
        )
        shown = [{**PLAYBACK.shown(each.record), "id": each.fields["at"]} for each in page.entries]
        return items(shown, cursor=page.cursor)

    # Lists

    async def of_status(
        self, status: Status, query: messages.PageQuery, caller: Member, root: str
    ) -> Data[Items[Json]]:
        """List the listener's books of a status, the last played first."""
        found = await self._listener.of_status(caller.subject, status)
        shown = [
            {**to_builtins(state), "book": book}
            for state, book in await self._listener.with_books(found)
        ]
        page, cursor = page_of(shown, query.limit, query.cursor, query.offset)
        add_root(root, [each["book"] for each in page])
        return items(page, total=len(shown), cursor=cursor)

    async def resume(self, query: messages.PageQuery, caller: Member, root: str) -> Data[Json]:
        """List the books in progress, the last played first, and the next books of series."""
        found = await self._listener.of_status(caller.subject, "in_progress")
        shown = [
            {**to_builtins(state), "book": book}
            for state, book in await self._listener.with_books(found)
        ]
        ids = await self._listener.next_in_series(caller.subject)
        rows = await self._store.get_many(BOOK, [{"id": id} for id in ids])
        books = await self._listener.books.show_all([book for book in rows if book is not None])
        page, cursor = page_of(shown, query.limit, query.cursor, query.offset)
        add_root(root, [*(each["book"] for each in page), *books])
        listed = to_builtins(items(page, total=len(shown), cursor=cursor).data)
        return data({**listed, "next_in_series": books})

    # Bookmarks

    async def bookmarks(
        self, id: Id, query: messages.PageQuery, caller: Member
    ) -> Data[Items[Bookmark]]:
        """List the listener's bookmarks of a book."""
        found = await self._listener.bookmarks(caller.subject, id)
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        return items(page, total=len(found), cursor=cursor)

    async def add_bookmark(
        self, id: Id, body: messages.BookmarkBody, caller: Member
    ) -> Response[Data[Bookmark]]:
        """Add a bookmark."""
        return Response(data(await self._listener.add_bookmark(caller.subject, id, body)), 201)

    async def bookmark(self, id: Id, bookmark_id: Id, caller: Member) -> Data[Bookmark]:
        """Return one bookmark."""
        return data(await self._listener.bookmark(caller.subject, id, bookmark_id))

    async def change_bookmark(
        self, id: Id, bookmark_id: Id, body: messages.BookmarkPatch, caller: Member
    ) -> Data[Bookmark]:
        """Change a bookmark."""
        return data(await self._listener.change_bookmark(caller.subject, id, bookmark_id, body))

    async def delete_bookmark(self, id: Id, bookmark_id: Id, caller: Member) -> None:
        """Delete a bookmark."""
        await self._listener.delete_bookmark(caller.subject, id, bookmark_id)

    # Preferences

    async def preferences(self, query: messages.PageQuery, caller: Member) -> Data[Items[Json]]:
        """List the listener's preferences."""
        found = await self._preferences.all(caller.subject)
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        shown = [{"key": each.fields["key"], "value": each.record} for each in page]
        return items(shown, total=len(found), cursor=cursor)

    async def preference(self, key: str, caller: Member) -> Data[Any]:
        """Return a preference: any JSON value."""
        return data(await self._preferences.get(caller.subject, key))

    async def put_preference(self, key: str, body: Any, caller: Member) -> Data[Any]:
        """Put a preference: any JSON value, bare."""
        await self._preferences.put(caller.subject, key, body)
        return data(body)

    async def delete_preference(self, key: str, caller: Member) -> None:
        """Delete a preference."""
        await self._preferences.delete(caller.subject, key)

    # Statistics

    async def book_statistics(self, id: Id) -> Data[Statistics]:
        """Return plays and listened seconds of a book."""
        return data(await self._listener.of_book(id))

    async def work_statistics(self, id: Id) -> Data[Statistics]:
        """Return plays and listened seconds of a work: the sum of its books."""
        return data(await self._listener.of_work(id))

    async def my_statistics(self, caller: Member) -> Data[Statistics]:
        """Return plays and listened seconds of the signed-in listener."""
        return data(await self._listener.of_user(caller.subject))


def listening_routes(listener: Listener) -> Mapping[str, Route]:
    on = ListeningHandlers(listener)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    at = {"segment_id": "01J00000000000000000000001", "position_seconds": 252}
    found: dict[str, Route] = {
        "me_continue": api.get("/me/continue", on.resume, scope=VIEW),
        "me_status": api.get("/me/{status}", on.of_status, scope=VIEW, problems=absent),
        "preferences": api.get("/preferences", on.preferences, scope=VIEW),
        "preference": api.get("/preferences/{key}", on.preference, scope=VIEW, problems=absent),
        "put_preference": api.put(
            "/preferences/{key}",
            on.put_preference,
            scope=VIEW,
            problems=[ConflictError],
            example=1.25,
        ),
        "delete_preference": api.delete(
            "/preferences/{key}", on.delete_preference, scope=VIEW, problems=absent
        ),
        "stats_book": api.get("/stats/books/{id}", on.book_statistics, scope=VIEW, problems=absent),
        "stats_work": api.get("/stats/works/{id}", on.work_statistics, scope=VIEW, problems=absent),
        "stats_me": api.get("/stats/me", on.my_statistics, scope=VIEW),
    }
    for name in ("books", "audiobooks"):
        book, marks = f"/{name}/{{id}}", f"/{name}/{{id}}/bookmarks"
        one = f"{marks}/{{bookmark_id}}"
        found |= {
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
                replies=CREATED,
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
    return found
