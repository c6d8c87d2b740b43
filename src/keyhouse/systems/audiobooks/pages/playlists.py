"""The pages of playlists: the listener's own, and those that all share."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from keyhouse.errors import NotFoundError, UsageError
from keyhouse.http import Redirect, Route
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Member
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.pages.account import checked
from keyhouse.systems.audiobooks.pages.frame import LibraryFrame, at
from keyhouse.systems.audiobooks.permissions import ADMIN, PLAYLISTS
from keyhouse.systems.audiobooks.playlists import Playlists
from keyhouse.systems.audiobooks.records import Playlist
from keyhouse.systems.audiobooks.schema import BOOK

__all__ = ["BookListPages", "BookPlaylists"]

Json = dict[str, Any]


class PlaylistLine(Struct):
    """`is_changeable`: the member may change it."""

    id: str
    name: str
    is_shared: bool
    is_changeable: bool


class PlaylistsPage(Struct):
    """`book_counts` has the number of books by the id of a playlist."""

    playlists: Sequence[PlaylistLine]
    book_counts: dict[str, int]
    is_admin: bool


class BookPlaylists(Struct):
    """The playlists that have a book, and those to which the member may add it."""

    holding: Sequence[PlaylistLine]
    others: Sequence[PlaylistLine]


class PlaylistPage(Struct):
    playlist: PlaylistLine
    books: Sequence[Json]
    seconds: float


class NewPlaylistForm(Struct):
    """`book_id`: the first book of it."""

    name: str
    is_shared: bool = False
    book_id: Id | None = None


class RenameForm(Struct):
    name: str


class MoveForm(Struct):
    book_id: Id
    to: Literal["up", "down", "out"]


class AddForm(Struct):
    playlist_id: Id


class ConfirmForm(Struct):
    confirmed: bool = False


class BookListPages:
    def __init__(self, playlists: Playlists, books: Books) -> None:
        self._playlists = playlists
        self._books = books
        self._store = books.store

    async def of_book(self, caller: Member, book_id: str) -> BookPlaylists:
        """Return the playlists that a member sees on the page of a book."""
        lines = _lines(await self._playlists.visible(caller), caller)
        ids = await self._playlists.holding(book_id) if lines else ()
        return BookPlaylists(
            [line for line in lines if line.id in ids],
            [line for line in lines if line.id not in ids and line.is_changeable],
        )

    async def all(self, caller: Member) -> PlaylistsPage:
        """The playlists of the listener, and those of all."""
        found = await self._playlists.visible(caller)
        counts = {
            each["id"]: len(each["book_ids"]) for each in await self._playlists.show_all(found)
        }
        return PlaylistsPage(_lines(found, caller), counts, ADMIN in caller.roles)

    async def one(self, id: str, caller: Member) -> PlaylistPage:
        """A playlist: its books in order."""
        playlist = await self._playlists.get(caller, id)
        shown = await self._playlists.show(playlist)
        rows = await self._store.get_many(BOOK, [{"id": each} for each in shown["book_ids"]])
        books = await self._books.show_all([book for book in rows if book is not None])
        seconds = sum(book["duration"] or 0 for book in books)
        return PlaylistPage(_line(playlist, caller), books, seconds)

    async def create(self, form: NewPlaylistForm, caller: Member) -> Redirect:
        """Create a playlist."""
        name = checked(messages.PlaylistPatch, name=form.name.strip()).name
        owner = None if form.is_shared else UNSET
        books = [] if form.book_id is None else [form.book_id]
        made = await self._playlists.create(caller, name, owner, books)
        return Redirect(at("playlists", made.id))

    async def rename(self, id: str, form: RenameForm, caller: Member) -> Redirect:
        """Rename a playlist."""
        body = checked(messages.PlaylistPatch, name=form.name.strip())
        await self._playlists.rename(caller, id, body.name)
        return Redirect(at("playlists", id))

    async def delete(self, id: str, form: ConfirmForm, caller: Member) -> Redirect:
        """Delete a playlist."""
        if not form.confirmed:
            raise UsageError("Tick the box to delete the playlist.")
        await self._playlists.delete(caller, id)
        return Redirect(at("playlists"))

    async def move(self, id: str, form: MoveForm, caller: Member) -> Redirect:
        """Move a book by one place, or out of the playlist."""
        if form.to == "out":
            await self._playlists.remove(caller, id, [form.book_id])
            return Redirect(at("playlists", id))
        shown = await self._playlists.show(await self._playlists.changeable(caller, id))
        order = list(shown["book_ids"])
        if form.book_id not in order:
            raise NotFoundError("The playlist does not have this book.", book_id=form.book_id)
        place = order.index(form.book_id)
        target = place + (1 if form.to == "down" else -1)
        if 0 <= target < len(order):
            order[place], order[target] = order[target], order[place]
            await self._playlists.reorder(caller, id, order)
        return Redirect(at("playlists", id))

    async def add(self, id: str, form: AddForm, caller: Member) -> Redirect:
        """Add a book to a playlist."""
        await self._books.get(id)
        await self._playlists.add(caller, form.playlist_id, [id])
        return Redirect(at("playlists", form.playlist_id))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        one = "/playlists/{id}"
        return [
            frame.page("/playlists", self.all, "playlists.html"),
            frame.page(one, self.one, "playlist.html"),
            frame.form("/playlists", self.create, scope=PLAYLISTS),
            frame.form(f"{one}/name", self.rename, scope=PLAYLISTS),
            frame.form(f"{one}/delete", self.delete, scope=PLAYLISTS),
            frame.form(f"{one}/move", self.move, scope=PLAYLISTS),
            frame.form("/books/{id}/playlist", self.add, scope=PLAYLISTS),
        ]


def _lines(found: Sequence[Playlist], caller: Member) -> list[PlaylistLine]:
    """Return playlists by name, a member's own first."""
    lines = [_line(each, caller) for each in found]
    return sorted(lines, key=lambda line: (line.is_shared, line.name.casefold(), line.id))


def _line(playlist: Playlist, caller: Member) -> PlaylistLine:
    is_shared = playlist.user_id is None
    is_changeable = PLAYLISTS in caller.scopes and (not is_shared or ADMIN in caller.roles)
    return PlaylistLine(playlist.id, playlist.name, is_shared, is_changeable)
