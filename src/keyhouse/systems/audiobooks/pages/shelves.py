"""Shelves, lists and search: the pages on which a listener finds a book."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from keyhouse.http import Route
from keyhouse.keys import normal
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Member, offset_cursor
from keyhouse.systems.audiobooks.listening import Listener
from keyhouse.systems.audiobooks.messages import BookQuery, Order, SortBy
from keyhouse.systems.audiobooks.pages.frame import LibraryFrame
from keyhouse.systems.audiobooks.playback import status
from keyhouse.systems.audiobooks.records import Author, Book, Series, Status, is_listed
from keyhouse.systems.audiobooks.schema import (
    AUTHOR,
    AUTHOR_BY_NAME,
    BOOK,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_SERIES,
    BOOKS_BY_TAG,
    PROGRESS,
    SERIES,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
)
from keyhouse.systems.audiobooks.search import LibrarySearch

__all__ = ["Card", "Shelves"]

SHELF_MAX: Final = 12
PAGE: Final = 48
NAMES_PAGE: Final = 100
Json = dict[str, Any]


class Card(Struct):
    """A book on a shelf. `percent` and `status` are the listener's."""

    book: Json
    percent: float = 0.0
    status: Status = "unstarted"


class Home(Struct):
    resumed: list[Card]
    next_in_series: list[Card]
    newest: list[Card]
    count: int


class ShelfQuery(Struct):
    tag: str = ""
    status: Literal["", "unstarted", "in_progress", "finished", "abandoned"] = ""
    sort: SortBy = "title"
    order: Order = "asc"
    cursor: str = ""


class ShelfPage(Struct):
    query: ShelfQuery
    cards: list[Card]
    cursor: str = ""
    total: int | None = None


class NameQueryOfPage(Struct):
    cursor: str = ""
    prefix: str = ""


class NameLine(Struct):
    id: str
    name: str
    books: int
    author: str = ""


class NamePage(Struct):
    query: NameQueryOfPage
    names: list[NameLine]
    cursor: str = ""


class TagPage(Struct):
    tags: list[tuple[str, int]]


class AuthorPage(Struct):
    author: Author
    series: list[NameLine]
    cards: list[Card]


class SeriesPage(Struct):
    series: Series
    author: Author | None
    cards: list[Card]


class WordsQuery(Struct):
    q: str = ""
    cursor: str = ""


class FoundPage(Struct):
    q: str
    cards: list[Card]
    total: int = 0
    cursor: str = ""


class Shelves:
    def __init__(self, books: Books, listener: Listener, search: LibrarySearch) -> None:
        self._books = books
        self._store = books.store
        self._library = books.library
        self._listener = listener
        self._search = search

    async def home(self, caller: Member) -> Home:
        """The shelves: books in progress, the next ones of series, and new ones."""
        found = await self._listener.of_status(caller.subject, "in_progress")
        resumed = [
            Card(book, state.progress_pct, state.status)
            for state, book in await self._listener.with_books(found[:SHELF_MAX])
        ]
        ids = (await self._listener.next_in_series(caller.subject))[:SHELF_MAX]
        rows = await self._store.get_many(BOOK, [{"id": id} for id in ids])
        following = [book for book in rows if book is not None and is_listed(book)]
        newest: list[Book] = []
        async for entry in self._store.scan(BOOK, reverse=True):  # ids begin with their time
            if is_listed(entry.record):
                newest.append(entry.record)
            if len(newest) == SHELF_MAX:
                break
        return Home(
            resumed,
            await self._stored_cards(following, caller),
            await self._stored_cards(newest, caller),
            await self._books.count(),
        )

    async def books(self, query: ShelfQuery, caller: Member) -> ShelfPage:
        """All books, or those of a tag or of a status, sorted."""
        if query.status:
            states = await self._listener.of_status(caller.subject, query.status)
            start = offset_cursor(query.cursor or None, 0)
            pairs = await self._listener.with_books(states[start : start + PAGE])
            cards = [Card(book, state.progress_pct, state.status) for state, book in pairs]
            cursor = f"@{start + PAGE}" if start + PAGE < len(states) else ""
            return ShelfPage(query, cards, cursor)
        asked = BookQuery(
            tag=query.tag or None,
            sort_by=query.sort,
            sort_order=query.order,
            cursor=query.cursor or None,
            limit=PAGE,
        )
        found = (await self._books.page(asked)).data
        total = found.total or None
        if not query.tag:
            total = await self._books.count()
        return ShelfPage(query, await self._cards(found.items, caller), found.cursor or "", total)

    async def authors(self, query: NameQueryOfPage, caller: Member) -> NamePage:
        """The authors by name."""
        page = await self._store.page(
            AUTHOR,
            by=AUTHOR_BY_NAME,
            limit=NAMES_PAGE,
            cursor=query.cursor or None,
            prefix=normal(query.prefix) or None,
        )
        lines = [
            NameLine(
                each.record.id,
                each.record.name,
                await self._store.count(BOOKS_BY_AUTHOR, author_id=each.record.id),
            )
            for each in page.entries
        ]
        return NamePage(query, lines, page.cursor or "")

    async def all_series(self, query: NameQueryOfPage, caller: Member) -> NamePage:
        """The series by name."""
        page = await self._store.page(
            SERIES,
            by=SERIES_BY_NAME_AND_AUTHOR,
            limit=NAMES_PAGE,
            cursor=query.cursor or None,
            prefix=normal(query.prefix) or None,
        )
        lines = await self._series_lines([each.record for each in page.entries])
        return NamePage(query, lines, page.cursor or "")

    async def tags(self, caller: Member) -> TagPage:
        """The tags, with their numbers of books."""
        counts: dict[str, int] = {}
        first: dict[str, str] = {}
        cursor: str | None = None
        while True:
            keys, cursor = await self._store.keys(BOOKS_BY_TAG, cursor=cursor)
            for key in keys:
                tag, _, id = key.rpartition(":")
                counts[tag] = counts.get(tag, 0) + 1
                first.setdefault(tag, id)
            if cursor is None:
                break
        books = await self._store.get_many(BOOK, [{"id": id} for id in first.values()])
        names = [
            self._tag_name(f"{tag}:{first[tag]}", book)
            for tag, book in zip(first, books, strict=True)
        ]
        return TagPage([*zip(names, counts.values(), strict=True)])

    def _tag_name(self, key: str, book: Book | None) -> str:
        """Return the tag of an index row as a book of it writes it."""
        match = self._store.schema.find(key)
        tag = "" if match is None else str(match.fields["tag"])
        written = () if book is None else book.tags
        return next((each for each in written if normal(each) == tag), tag)

    async def author(self, id: str, caller: Member) -> AuthorPage:
        """An author: series and books."""
        author = (await self._library.require(AUTHOR, "author", id=id)).record
        series = self._store.scan(SERIES, by=SERIES_OF_AUTHOR, author_id=id)
        lines = await self._series_lines([each.record async for each in series])
        found = (await self._books.page(BookQuery(author_id=id, sort_by="title", limit=500))).data
        return AuthorPage(author, lines, await self._cards(found.items, caller))

    async def series(self, id: str, caller: Member) -> SeriesPage:
        """A series: its books in order."""
        series = (await self._library.require(SERIES, "series", id=id)).record
        author = None
        if series.author_id is not None:
            author = await self._store.get(AUTHOR, id=series.author_id)
        rows = self._store.scan(BOOK, by=BOOKS_BY_SERIES, series_id=id)
        cards = await self._stored_cards([each.record async for each in rows], caller)
        return SeriesPage(series, author, cards)

    async def search(self, query: WordsQuery, caller: Member) -> FoundPage:
        """Books by words in titles, authors, series, narrators, tags and descriptions."""
        words = query.q.strip()
        if not words:
            return FoundPage("", [])
        ids = await self._search.books(words)
        asked = BookQuery(limit=PAGE, cursor=query.cursor or None)
        found = (await self._books.page(asked, ids)).data
        cards = await self._cards(found.items, caller)
        return FoundPage(words, cards, found.total or 0, found.cursor or "")

    async def _series_lines(self, series: Sequence[Series]) -> list[NameLine]:
        authors = await self._store.get_many(
            AUTHOR, [{"id": each.author_id} for each in series if each.author_id]
        )
        names = {author.id: author.name for author in authors if author is not None}
        return [
            NameLine(
                each.id,
                each.name,
                await self._store.count(BOOKS_BY_SERIES, series_id=each.id),
                names.get(each.author_id or "", ""),
            )
            for each in series
        ]

    async def _stored_cards(self, books: Sequence[Book], caller: Member) -> list[Card]:
        return await self._cards(await self._books.show_all(books), caller)

    async def _cards(self, books: Sequence[Json], caller: Member) -> list[Card]:
        keys = [{"user_id": caller.subject, "book_id": book["id"]} for book in books]
        rows = await self._store.get_many(PROGRESS, keys)
        return [
            Card(book) if row is None else Card(book, row.percent_complete, status(row))
            for book, row in zip(books, rows, strict=True)
        ]

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.page("/", self.home, "home.html"),
            frame.page("/books", self.books, "books.html"),
            frame.page("/authors", self.authors, "authors.html"),
            frame.page("/authors/{id}", self.author, "author.html"),
            frame.page("/series", self.all_series, "all_series.html"),
            frame.page("/series/{id}", self.series, "series.html"),
            frame.page("/tags", self.tags, "tags.html"),
            frame.page("/search", self.search, "search.html"),
        ]
