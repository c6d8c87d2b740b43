"""The page of a book: its chapters, files, place and neighbours in its series."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct

from keyhouse.http import Redirect, Route
from keyhouse_audiobooks.accounts.permissions import DELETE
from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.files.messages import ShownSegment
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening.messages import PlaybackState, Statistics
from keyhouse_audiobooks.records import Book
from keyhouse_audiobooks.web.frame import ConfirmForm, LibraryFrame, at
from keyhouse_audiobooks.web.playlists import BookPlaylists, playlists_of_book

__all__ = ["BookPages"]


class ChapterLine(Struct):
    """A chapter by its times in the whole book."""

    title: str
    start: float
    end: float
    number: int


class BookPage(Struct):
    """`place` is the listener's, in seconds of the whole book; `bookmarks` have theirs."""

    book: ShownBook
    state: PlaybackState
    place: float
    segments: Sequence[ShownSegment]
    chapters: list[ChapterLine]
    previous: Book | None
    following: Book | None
    statistics: Statistics
    size_bytes: int
    playlists: BookPlaylists


class StatusForm(Struct):
    """`status` "": by the progress."""

    status: Literal["", "unstarted", "in_progress", "finished", "abandoned"] = ""


class BookPages:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def book(self, id: str, caller: Member) -> BookPage:
        """A book."""
        library = self._library(caller)
        entry = await library.books.get(id)
        segments = (await library.files.segments(id, caller)).items
        state = await library.listener.state(caller.subject, id)
        starts = {each.id: each.offset_start for each in segments}
        place = starts.get(state.last_segment_id or "", 0) + state.position_seconds
        previous, following = await library.books.neighbours(entry.record)
        return BookPage(
            await library.books.show(entry.record),
            state,
            place,
            segments,
            chapters(segments),
            previous,
            following,
            await library.listener.of_book(id),
            sum(each.size_bytes for each in segments),
            await playlists_of_book(library, caller, id),
        )

    async def set_status(self, id: str, form: StatusForm, caller: Member) -> Redirect:
        """Set the status of a book, or let it follow the progress."""
        listener = self._library(caller).listener
        await listener.set_status(caller.subject, id, form.status or UNSET)
        return Redirect(at("books", id))

    async def bin(self, id: str, form: ConfirmForm, caller: Member) -> Redirect:
        """Put a book into the bin."""
        form.require("put the book into the bin")
        await self._library(caller).books.bin(id)
        return Redirect(at("books"))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.page("/books/{id}", self.book, "book.html"),
            frame.form("/books/{id}/status", self.set_status),
            frame.form("/books/{id}/bin", self.bin, scope=DELETE),
        ]


def chapters(segments: Sequence[ShownSegment]) -> list[ChapterLine]:
    """Return the chapters of a book. A file without any is one chapter."""
    chapters: list[ChapterLine] = []
    for number, segment in enumerate(segments, 1):
        start, duration = segment.offset_start, segment.duration_seconds
        marks = segment.chapters or []
        if not marks:
            title = segment.title or f"Part {number}"
            chapters.append(ChapterLine(title, start, start + duration, 0))
        for mark, following in zip(marks, [*marks[1:], None], strict=False):
            end = duration if following is None else following.start_seconds
            chapters.append(ChapterLine(mark.title, start + mark.start_seconds, start + end, 0))
    for number, each in enumerate(chapters, 1):
        each.number = number
    return chapters
