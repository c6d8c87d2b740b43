"""The pages of playlists: the listener's own, and those that all share."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct

from keyhouse.errors import NotFoundError
from keyhouse.http import Redirect, Route
from keyhouse_audiobooks.accounts.permissions import PLAYLISTS
from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.libraries import Libraries, ServedLibrary
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening.messages import PlaylistPatch
from keyhouse_audiobooks.listening.playlists import is_owned
from keyhouse_audiobooks.messages import Id
from keyhouse_audiobooks.records import Playlist
from keyhouse_audiobooks.web.frame import ConfirmForm, LibraryFrame, NameForm, at, checked

__all__ = ["BookPlaylists", "PlaylistPages", "playlists_of_book"]


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
    books: Sequence[ShownBook]
    seconds: float


class NewPlaylistForm(Struct):
    """`book_id`: the first book of it."""

    name: str
    is_shared: bool = False
    book_id: Id | None = None


class MoveForm(Struct):
    book_id: Id
    to: Literal["up", "down", "out"]


class AddForm(Struct):
    playlist_id: Id


class PlaylistPages:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def all(self, caller: Member) -> PlaylistsPage:
        """The playlists of the listener, and those of all."""
        playlists = self._library(caller).playlists
        visible = await playlists.visible(caller)
        counts = {each.id: len(each.book_ids) for each in await playlists.show_all(visible)}
        return PlaylistsPage(_lines(visible, caller), counts, is_owned(caller, None))

    async def one(self, id: str, caller: Member) -> PlaylistPage:
        """A playlist: its books in order."""
        library = self._library(caller)
        playlist = await library.playlists.show(await library.playlists.get(caller, id))
        books = await library.books.by_ids(playlist.book_ids)
        return PlaylistPage(
            _line(playlist, caller), books, sum(book.duration or 0 for book in books)
        )

    async def create(self, form: NewPlaylistForm, caller: Member) -> Redirect:
        """Create a playlist."""
        name = checked(PlaylistPatch, name=form.name.strip()).name
        owner = None if form.is_shared else UNSET
        books = [] if form.book_id is None else [form.book_id]
        made = await self._library(caller).playlists.create(caller, name, owner, books)
        return Redirect(at("playlists", made.id))

    async def rename(self, id: str, form: NameForm, caller: Member) -> Redirect:
        """Rename a playlist."""
        name = checked(PlaylistPatch, name=form.name.strip()).name
        await self._library(caller).playlists.rename(caller, id, name)
        return Redirect(at("playlists", id))

    async def delete(self, id: str, form: ConfirmForm, caller: Member) -> Redirect:
        """Delete a playlist."""
        form.require("delete the playlist")
        await self._library(caller).playlists.delete(caller, id)
        return Redirect(at("playlists"))

    async def move(self, id: str, form: MoveForm, caller: Member) -> Redirect:
        """Move a book by one place, or out of the playlist."""
        playlists = self._library(caller).playlists
        if form.to == "out":
            await playlists.remove(caller, id, [form.book_id])
            return Redirect(at("playlists", id))
        order = (await playlists.show(await playlists.changeable(caller, id))).book_ids
        if form.book_id not in order:
            raise NotFoundError("The playlist does not have this book.", book_id=form.book_id)
        place = order.index(form.book_id)
        target = place + (1 if form.to == "down" else -1)
        if 0 <= target < len(order):
            order[place], order[target] = order[target], order[place]
            await playlists.reorder(caller, id, order)
        return Redirect(at("playlists", id))

    async def add(self, id: str, form: AddForm, caller: Member) -> Redirect:
        """Add a book to a playlist."""
        library = self._library(caller)
        await library.books.get(id)
        await library.playlists.add(caller, form.playlist_id, [id])
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


async def playlists_of_book(library: ServedLibrary, caller: Member, book_id: str) -> BookPlaylists:
    """Return the playlists that a member sees on the page of a book."""
    lines = _lines(await library.playlists.visible(caller), caller)
    ids = await library.playlists.holding(book_id) if lines else ()
    return BookPlaylists(
        [line for line in lines if line.id in ids],
        [line for line in lines if line.id not in ids and line.is_changeable],
    )


def _lines(playlists: Sequence[Playlist], caller: Member) -> list[PlaylistLine]:
    """Return playlists by name, a member's own first."""
    lines = [_line(each, caller) for each in playlists]
    return sorted(lines, key=lambda line: (line.is_shared, line.name.casefold(), line.id))


def _line(playlist: Playlist, caller: Member) -> PlaylistLine:
    is_shared = playlist.user_id is None
    is_changeable = PLAYLISTS in caller.scopes and is_owned(caller, playlist.user_id)
    return PlaylistLine(playlist.id, playlist.name, is_shared, is_changeable)
