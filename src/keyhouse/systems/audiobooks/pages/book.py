"""The page of a book: its chapters, files, place and neighbours in its series."""

from typing import Any, Literal

from msgspec import UNSET, Struct

from keyhouse.errors import UsageError
from keyhouse.http import Redirect, Route
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Member
from keyhouse.systems.audiobooks.listening import Listener, PlaybackState, Statistics
from keyhouse.systems.audiobooks.pages.frame import LibraryFrame, at
from keyhouse.systems.audiobooks.pages.playlists import BookListPages, BookPlaylists
from keyhouse.systems.audiobooks.permissions import DELETE
from keyhouse.systems.audiobooks.records import Book
from keyhouse.systems.audiobooks.routes.files import FileHandlers, SegmentsQuery
from keyhouse.systems.audiobooks.schema import BOOK, BOOKS_BY_SERIES

__all__ = ["BookPages"]

Json = dict[str, Any]


class ChapterLine(Struct):
    """A chapter by its times in the whole book."""

    title: str
    start: float
    end: float
    number: int


class BookPage(Struct):
    """`place` is the listener's, in seconds of the whole book; `bookmarks` have theirs."""

    book: Json
    state: PlaybackState
    place: float
    segments: list[Json]
    chapters: list[ChapterLine]
    previous: Book | None
    following: Book | None
    statistics: Statistics
    size_bytes: int
    playlists: BookPlaylists


class StatusForm(Struct):
    """`status` "": by the progress."""

    status: Literal["", "unstarted", "in_progress", "finished", "abandoned"] = ""


class DeletionForm(Struct):
    confirmed: bool = False


class BookPages:
    def __init__(
        self, books: Books, listener: Listener, files: FileHandlers, playlists: BookListPages
    ) -> None:
        self._books = books
        self._store = books.store
        self._listener = listener
        self._files = files
        self._playlists = playlists

    async def book(self, id: str, caller: Member) -> BookPage:
        """A book."""
        entry = await self._books.get(id)
        found = (await self._files.segments(id, SegmentsQuery(), caller)).data.items
        segments = [dict(each) for each in found]
        state = await self._listener.state(caller.subject, id)
        starts = {each["id"]: each["offset_start"] for each in segments}
        place = starts.get(state.last_segment_id, 0) + state.position_seconds
        previous, following = await self._neighbours(entry.record)
        return BookPage(
            await self._books.show(entry.record),
            state,
            place,
            segments,
            chapters(segments),
            previous,
            following,
            await self._listener.of_book(id),
            sum(each["size_bytes"] for each in segments),
            await self._playlists.of_book(caller, id),
        )

    async def _neighbours(self, book: Book) -> tuple[Book | None, Book | None]:
        """Return the books before and after one in its series."""
        if book.series_id is None:
            return None, None
        rows = self._store.scan(BOOK, by=BOOKS_BY_SERIES, series_id=book.series_id)
        found = [entry.record async for entry in rows]
        for before, each, after in zip([None, *found], found, [*found[1:], None], strict=False):
            if each.id == book.id:
                return before, after
        return None, None

    async def set_status(self, id: str, form: StatusForm, caller: Member) -> Redirect:
        """Set the status of a book, or let it follow the progress."""
        await self._listener.set_status(caller.subject, id, form.status or UNSET)
        return Redirect(at("books", id))

    async def bin(self, id: str, form: DeletionForm, caller: Member) -> Redirect:
        """Put a book into the bin."""
        if not form.confirmed:
            raise UsageError("Tick the box to put the book into the bin.")
        await self._books.bin(id, lambda revision: None)
        return Redirect(at("books"))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.page("/books/{id}", self.book, "book.html"),
            frame.form("/books/{id}/status", self.set_status),
            frame.form("/books/{id}/bin", self.bin, scope=DELETE),
        ]


def chapters(segments: list[Json]) -> list[ChapterLine]:
    """Return the chapters of a book. A file without any is one chapter."""
    found: list[ChapterLine] = []
    for number, segment in enumerate(segments, 1):
        start, duration = segment["offset_start"], segment["duration_seconds"]
        marks = segment.get("chapters") or []
        if not marks:
            title = segment.get("title") or f"Part {number}"
            found.append(ChapterLine(title, start, start + duration, 0))
        for place, mark in enumerate(marks):
            end = marks[place + 1]["start_seconds"] if place + 1 < len(marks) else duration
            found.append(ChapterLine(mark["title"], start + mark["start_seconds"], start + end, 0))
    for number, each in enumerate(found, 1):
        each.number = number
    return found
