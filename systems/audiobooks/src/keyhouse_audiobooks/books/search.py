"""Full-text search of the library: books by their own texts, and by those of their author, series
and work.

An index document has the texts of one record. A query of several words may match one in the title
and another in the author's name, so each word is searched by itself, and the books that all words
lead to are the result: first those whose own texts match the whole query.
"""

from typing import Any, Final

from keyhouse.search import SearchIndex, SearchSchema, SearchSource
from keyhouse_audiobooks.books.catalog import AUTHORS, SERIES_KIND, WORKS
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.records import Author, Book, Series, Work, is_listed
from keyhouse_audiobooks.schema import AUTHOR, BOOK, SERIES, WORK

__all__ = ["SEARCH", "LibrarySearch"]

HITS_MAX: Final = 1_000
WORDS_MAX: Final = 8


def _book_texts(book: Book) -> dict[str, Any] | None:
    if not is_listed(book):
        return None
    return {
        "title": book.title,
        "people": book.narrator,
        "tags": [*book.tags, *(book.genres or ())],
        "text": book.description,
    }


def _author_texts(author: Author) -> dict[str, Any]:
    return {"people": author.name}


def _series_texts(series: Series) -> dict[str, Any]:
    return {"title": series.name}


def _work_texts(work: Work) -> dict[str, Any]:
    return {"title": [work.title, *work.alt_titles]}


SEARCH: Final = SearchSchema(
    "audiobooks",
    SearchSource(record=BOOK, texts=_book_texts, sort=lambda book: book.normalized_title),
    SearchSource(record=AUTHOR, texts=_author_texts),
    SearchSource(record=SERIES, texts=_series_texts),
    SearchSource(record=WORK, texts=_work_texts),
    fields={"title": 10.0, "people": 5.0, "tags": 3.0, "text": 1.0},
)
_KINDS: Final = {kind.record.name: kind for kind in (AUTHORS, SERIES_KIND, WORKS)}


class LibrarySearch:
    def __init__(self, library: Library) -> None:
        self._store = library.store
        self.index = SearchIndex(SEARCH, library.folder / "search", library.store)

    async def books(self, query: str, *, after: int = 0) -> list[str]:
        """Return the ids of the books that a query finds, best first."""
        whole = await self._found(query, after)
        words = query.split()[:WORDS_MAX]
        if len(words) < 2:
            return list(whole)
        sets = [await self._found(word, 0) for word in words]
        rest = {id for id in sets[0] if all(id in each for each in sets[1:])}
        return [*whole, *(id for id in sets[0] if id in rest and id not in whole)]

    async def _found(self, query: str, after: int) -> dict[str, None]:
        page = await self.index.search(query, limit=HITS_MAX, after=after)
        found: dict[str, None] = {}
        for hit in page.hits:
            if hit.record == BOOK.name:
                found[str(hit.fields["id"])] = None
        for hit in page.hits:
            if (kind := _KINDS.get(hit.record)) is not None:
                entries = self._store.scan(
                    BOOK, by=kind.books, **kind.refers(str(hit.fields["id"]))
                )
                found.update({entry.record.id: None async for entry in entries})
        return found
