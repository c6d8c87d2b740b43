"""Shelves, lists and search: the pages on which a listener finds a book."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from keyhouse.http import Route
from keyhouse_audiobooks.books.catalog import AUTHORS, SERIES_KIND
from keyhouse_audiobooks.books.messages import (
    BookQuery,
    NamedSeries,
    NameQuery,
    Order,
    ShownAuthor,
    ShownSeries,
    SortBy,
)
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening.messages import ListenedBook, ShelvedBook
from keyhouse_audiobooks.lists import LIMIT_MAX, offset_cursor
from keyhouse_audiobooks.web.frame import LibraryFrame

__all__ = ["Shelves"]

SHELF_MAX: Final = 12
PAGE: Final = 48
NAMES_PAGE: Final = 100
Cards = Sequence[ListenedBook] | Sequence[ShelvedBook]


class Home(Struct):
    resumed: Cards
    next_in_series: Cards
    newest: Cards
    count: int


class ShelfQuery(Struct):
    tag: str = ""
    status: Literal["", "unstarted", "in_progress", "finished", "abandoned"] = ""
    sort: SortBy = "title"
    order: Order = "asc"
    cursor: str = ""


class ShelfPage(Struct):
    query: ShelfQuery
    cards: Cards
    cursor: str = ""
    total: int | None = None


class NameQueryOfPage(Struct):
    cursor: str = ""
    prefix: str = ""


class NamePage(Struct):
    path: Literal["authors", "series"]
    query: NameQueryOfPage
    names: Sequence[ShownAuthor] | Sequence[NamedSeries]
    cursor: str = ""


class TagPage(Struct):
    tags: list[tuple[str, int]]


class AuthorPage(Struct):
    author: ShownAuthor
    series: Sequence[ShownSeries]
    cards: Cards


class SeriesPage(Struct):
    series: NamedSeries
    cards: Cards


class WordsQuery(Struct):
    q: str = ""
    cursor: str = ""


class FoundPage(Struct):
    q: str
    cards: Cards
    total: int = 0
    cursor: str = ""


class Shelves:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def home(self, caller: Member) -> Home:
        """The shelves: books in progress, the next ones of series, and new ones."""
        library, user_id = self._library(caller), caller.subject
        books, listener = library.books, library.listener
        states = await listener.of_status(user_id, "in_progress")
        ids = (await listener.next_in_series(user_id))[:SHELF_MAX]
        return Home(
            await listener.with_books(states[:SHELF_MAX]),
            await listener.shelve(user_id, await books.by_ids(ids)),
            await listener.shelve(user_id, await books.newest(SHELF_MAX)),
            await books.count(),
        )

    async def books(self, query: ShelfQuery, caller: Member) -> ShelfPage:
        """All books, or those of a tag or of a status, sorted."""
        library = self._library(caller)
        if query.status:
            states = await library.listener.of_status(caller.subject, query.status)
            start = offset_cursor(query.cursor or None, 0)
            listened = await library.listener.with_books(states[start : start + PAGE])
            cursor = f"@{start + PAGE}" if start + PAGE < len(states) else ""
            return ShelfPage(query, listened, cursor)
        asked = BookQuery(
            tag=query.tag or None,
            sort_by=query.sort,
            sort_order=query.order,
            cursor=query.cursor or None,
            limit=PAGE,
        )
        page = await library.books.page(asked)
        total = (page.total or None) if query.tag else await library.books.count()
        cards = await library.listener.shelve(caller.subject, page.items)
        return ShelfPage(query, cards, page.cursor or "", total)

    async def authors(self, query: NameQueryOfPage, caller: Member) -> NamePage:
        """The authors by name."""
        page = await self._library(caller).catalog.page(AUTHORS, _name_query(query))
        return NamePage("authors", query, page.items, page.cursor or "")

    async def all_series(self, query: NameQueryOfPage, caller: Member) -> NamePage:
        """The series by name."""
        catalog = self._library(caller).catalog
        page = await catalog.page(SERIES_KIND, _name_query(query))
        names = await catalog.with_authors(page.items)
        return NamePage("series", query, names, page.cursor or "")

    async def tags(self, caller: Member) -> TagPage:
        """The tags, with their numbers of books."""
        return TagPage(await self._library(caller).books.tags())

    async def author(self, id: str, caller: Member) -> AuthorPage:
        """An author: series and books."""
        library = self._library(caller)
        author = (await library.catalog.get(AUTHORS, id)).record
        written = NameQuery(LIMIT_MAX, author_id=id)
        series = (await library.catalog.page(SERIES_KIND, written)).items
        query = BookQuery(author_id=id, sort_by="title", limit=LIMIT_MAX)
        books = (await library.books.page(query)).items
        return AuthorPage(author, series, await library.listener.shelve(caller.subject, books))

    async def series(self, id: str, caller: Member) -> SeriesPage:
        """A series: its books in order."""
        library = self._library(caller)
        entry = await library.catalog.get(SERIES_KIND, id)
        [series] = await library.catalog.with_authors([entry.record])
        books = await library.books.show_all(await library.books.in_series(id))
        return SeriesPage(series, await library.listener.shelve(caller.subject, books))

    async def search(self, query: WordsQuery, caller: Member) -> FoundPage:
        """Books by words in titles, authors, series, narrators, tags and descriptions."""
        library, words = self._library(caller), query.q.strip()
        if not words:
            return FoundPage("", [])
        ids = await library.search.books(words)
        asked = BookQuery(limit=PAGE, cursor=query.cursor or None)
        page = await library.books.page(asked, ids)
        cards = await library.listener.shelve(caller.subject, page.items)
        return FoundPage(words, cards, page.total or 0, page.cursor or "")

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.page("/", self.home, "home.html"),
            frame.page("/books", self.books, "books.html"),
            frame.page("/authors", self.authors, "names.html"),
            frame.page("/authors/{id}", self.author, "author.html"),
            frame.page("/series", self.all_series, "names.html"),
            frame.page("/series/{id}", self.series, "series.html"),
            frame.page("/tags", self.tags, "tags.html"),
            frame.page("/search", self.search, "search.html"),
        ]


def _name_query(query: NameQueryOfPage) -> NameQuery:
    return NameQuery(NAMES_PAGE, query.cursor or None, name_prefix=query.prefix)
