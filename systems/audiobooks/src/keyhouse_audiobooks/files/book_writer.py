"""How a scan writes a book: its record, its segments in order, and the places of its listeners.

Members that a person has edited stay as they are, and so does the order of segments that a person
has changed.
"""

from msgspec.structs import replace

from keyhouse.store import Transaction
from keyhouse_audiobooks.books.catalog import BookCatalog
from keyhouse_audiobooks.books.segments import (
    SEGMENTS_MEMBER,
    read_segments,
    take_out,
    write_segments,
)
from keyhouse_audiobooks.files.scanned_books import ScannedBook, ScannedFile, playing_order
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.listening.listener import placed_progress
from keyhouse_audiobooks.records import Book, Bookmark, Progress, Segment, is_binned
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOK_BY_SOURCE,
    BOOKMARK,
    BOOKMARKS_OF_BOOK,
    DURATION_MAP,
    LISTENERS_OF_BOOK,
    PROGRESS,
    SEGMENT,
    join_work,
)

__all__ = ["BookWriter"]


class BookWriter:
    def __init__(self, library: Library, catalog: BookCatalog) -> None:
        self._library = library
        self._store = library.store
        self._catalog = catalog

    async def write(
        self,
        tx: Transaction,
        scanned: ScannedBook,
        files: list[ScannedFile],
        emptied: dict[str, str],
    ) -> tuple[Book, bool]:
        """Write the files of a book; return the book, and whether it is new. Books that have no
        files after it are added to `emptied`, each with the book that has them now."""
        existing = await tx.lookup(BOOK, BOOK_BY_SOURCE, source=scanned.source)
        book = None if existing is None else existing.record
        if book is None:
            book = await self._book_of_moved(tx, files)
        proposed = await self._proposed(tx, scanned, book)
        await self._write(tx, proposed, files, emptied)
        return proposed, book is None

    async def _book_of_moved(self, tx: Transaction, files: list[ScannedFile]) -> Book | None:
        """Return the book of a file that was moved here or is known: its folder was renamed."""
        for file in files:
            if file.before is not None:
                return await tx.get(BOOK, id=file.before.book_id)
        return None

    async def _proposed(self, tx: Transaction, scanned: ScannedBook, book: Book | None) -> Book:
        """Return the book as the tags say, except what a person has edited."""
        catalog = self._catalog
        title, author = scanned.title, scanned.author
        series, place = scanned.series
        author_id = series_id = None
        if author:
            author_id, _ = await catalog.author_in(tx, author)
        if series:
            series_id, _ = await catalog.series_in(tx, series, author_id)
        work_id, _ = await catalog.work_in(tx, title, author_id)
        values = scanned.values() | {
            "title": title,
            "author_id": author_id,
            "series_id": series_id,
            "series_position": place,
            "work_id": work_id,
        }
        if book is None:
            return Book(id=self._library.new_id(), source=scanned.source, **values)
        edited = set(book.edited or ())
        kept = {name: value for name, value in values.items() if name not in edited}
        if "title" in edited or "author_id" in edited:
            kept.pop("work_id", None)
        return replace(book, source=scanned.source, **kept)

    async def _write(
        self, tx: Transaction, proposed: Book, files: list[ScannedFile], emptied: dict[str, str]
    ) -> None:
        stored = await tx.get(BOOK, id=proposed.id)
        if stored is None:
            await tx.put(BOOK, proposed)
        elif _without_times(stored) != _without_times(proposed):
            current = replace(proposed, work_id=stored.work_id)
            if proposed.work_id != stored.work_id:
                await join_work(tx, current, proposed.work_id)
            else:
                await tx.put(BOOK, current)
        segments = {each.id: each for each in await read_segments(tx, proposed.id)}
        for file in files:
            segment = file.segment(segments, proposed.id)
            segments[segment.id] = segment
            if file.before is not None:
                elsewhere = await tx.get(SEGMENT, id=segment.id)
                is_elsewhere = elsewhere is not None and elsewhere.book_id != proposed.id
                if elsewhere is not None and is_elsewhere and await self._leave(tx, elsewhere):
                    emptied[elsewhere.book_id] = proposed.id
        ordered = list(segments.values())
        if SEGMENTS_MEMBER not in (proposed.edited or ()):
            ordered.sort(key=playing_order)
        await write_segments(tx, proposed.id, ordered)

    async def _leave(self, tx: Transaction, segment: Segment) -> bool:
        """Take a segment out of the book that it was in: its album has changed. A book without
        files is put into the bin; return whether it was."""
        rest = await take_out(tx, segment)
        book = await tx.get(BOOK, id=segment.book_id)
        if book is None or is_binned(book) or any(each.active for each in rest):
            return False
        await tx.put(BOOK, replace(book, deleted_at=self._library.now()))
        return True

    async def move_places(self, old: str, new: str) -> None:
        """Give the listeners of a book without files their places in the book that has them now,
        unless they have one there."""
        progress = self._store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=old)
        for before in [entry.record async for entry in progress]:

            async def move(tx: Transaction, before: Progress = before) -> None:
                there = await tx.get(PROGRESS, user_id=before.user_id, book_id=new)
                durations = await tx.get(DURATION_MAP, book_id=new)
                if there is None and durations is not None:
                    await tx.put(PROGRESS, placed_progress(replace(before, book_id=new), durations))

            await self._store.transact(move)
        marks = self._store.scan(BOOKMARK, by=BOOKMARKS_OF_BOOK, book_id=old)
        for mark in [entry.record async for entry in marks]:

            async def move_mark(tx: Transaction, mark: Bookmark = mark) -> None:
                await tx.delete(BOOKMARK, user_id=mark.user_id, book_id=old, id=mark.id)
                await tx.put(BOOKMARK, replace(mark, book_id=new))

            await self._store.transact(move_mark)


def _without_times(book: Book) -> Book:
    return replace(book, updated_at="", normalized_title="")
