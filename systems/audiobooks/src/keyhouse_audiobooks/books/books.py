"""Books: lists, changes, the bin and purging."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import asdict, replace

from keyhouse.errors import ConflictError, NotFoundError, RecordError, UsageError
from keyhouse.keys import normal
from keyhouse.schema import Index
from keyhouse.store import Entry, Transaction
from keyhouse_audiobooks.books.catalog import names_of
from keyhouse_audiobooks.books.covers import Covers
from keyhouse_audiobooks.books.isbn import isbn10, isbn13
from keyhouse_audiobooks.books.messages import BookBody, BookPatch, BookQuery, ShownBook
from keyhouse_audiobooks.library import Check, Library, unchecked, valid_body
from keyhouse_audiobooks.lists import (
    Items,
    PageQuery,
    items,
    offset_cursor,
    page_limit,
    stored_page,
)
from keyhouse_audiobooks.records import Book, DurationMap, is_binned, is_listed
from keyhouse_audiobooks.schema import (
    AUTHOR,
    BIN,
    BOOK,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_GENRE,
    BOOKS_BY_ISBN10,
    BOOKS_BY_ISBN13,
    BOOKS_BY_SERIES,
    BOOKS_BY_TAG,
    BOOKS_BY_TITLE,
    BOOKS_BY_WORK,
    DURATION_MAP,
    SERIES,
    join_work,
)

__all__ = ["Books"]

Json = dict[str, Any]

_EDITABLE: Final = frozenset(BookPatch.__struct_fields__)
_ISBN10_CHARS: Final = 10
_WHOLE_TITLE_CHARS: Final = 70
"""Starts of titles that no index key cuts, whatever their characters."""


class Books:
    def __init__(self, library: Library, covers: Covers) -> None:
        self.library = library
        self.store = library.store
        self._covers = covers

    # Reading

    async def get(self, id: str) -> Entry[Book]:
        """Return a book that is not in the bin; NotFoundError otherwise."""
        entry = await self.library.require(BOOK, id=id)
        if is_binned(entry.record):
            raise NotFoundError("The book is in the bin: restore it first.", id=id)
        return entry

    async def show(self, book: Book) -> ShownBook:
        [shown] = await self.show_all([book])
        return shown

    async def show_all(self, books: Sequence[Book]) -> list[ShownBook]:
        """Return books as they are sent: with names of author and series, and duration."""
        authors = await names_of(self.store, AUTHOR, [book.author_id for book in books])
        series = await names_of(self.store, SERIES, [book.series_id for book in books])
        durations = await self.store.get_many(
            DURATION_MAP, [{"book_id": book.id} for book in books]
        )
        return [
            _shown(book, authors.get(book.author_id), series.get(book.series_id), duration)
            for book, duration in zip(books, durations, strict=True)
        ]

    async def page(
        self, query: BookQuery, searched: Sequence[str] | None = None
    ) -> Items[ShownBook]:
        """List books by an index, in its order, or sorted. `searched` are the ids that a search
        found, best first."""
        limit = page_limit(query.limit)
        filters = _filters(query)
        is_plain = all(not each.is_partial for each in filters)
        if len(filters) <= 1 and is_plain and searched is None and not query.offset:
            natural = filters[0].sorted_by if filters else "title"
            if query.sort_by in (None, natural) and not (query.cursor or "").startswith("@"):
                chosen = filters[0] if filters else _ALL
                page = await self.store.page(
                    BOOK,
                    by=chosen.index,
                    limit=limit,
                    cursor=query.cursor,
                    reverse=query.sort_order == "desc",
                    prefix=chosen.prefix,
                    **chosen.fields,
                )
                shown = await self.show_all([entry.record for entry in page.entries])
                return items(shown, cursor=page.cursor)
        return await self._sorted(query, filters, searched, limit)

    async def _sorted(
        self,
        query: BookQuery,
        filters: "Sequence[_Filter]",
        searched: Sequence[str] | None,
        limit: int,
    ) -> Items[ShownBook]:
        start = offset_cursor(query.cursor, query.offset)
        if searched is not None:
            rows = await self.store.get_many(BOOK, [{"id": id} for id in searched])
            books = [book for book in rows if book is not None and is_listed(book)]
        else:
            books = await self._matching(filters[0] if filters else _ALL)
            filters = [each for each in filters if each is not filters[0] or each.is_partial]
        books = [book for book in books if all(each.accepts(book) for each in filters)]
        if query.sort_by is not None or searched is None:
            books = await self._sort(books, query)
        shown = await self.show_all(books[start : start + limit])
        following = start + limit
        cursor = f"@{following}" if following < len(books) else None
        return items(shown, total=len(books), cursor=cursor)

    async def _matching(self, chosen: "_Filter") -> list[Book]:
        entries = self.store.scan(BOOK, by=chosen.index, prefix=chosen.prefix, **chosen.fields)
        return [entry.record async for entry in entries]

    async def _sort(self, books: list[Book], query: BookQuery) -> list[Book]:
        by = query.sort_by or "title"
        reverse = query.sort_order == "desc"
        values: dict[str, Any] = {}
        if by in ("author", "duration"):
            for shown in await self.show_all(books):
                name = shown.author_name
                author = None if name is None else normal(name)
                values[shown.id] = shown.duration if by == "duration" else author
        else:
            member = "normalized_title" if by == "title" else by
            values = {book.id: getattr(book, member) for book in books}
        known = [book for book in books if values[book.id] is not None]
        known.sort(key=lambda book: (values[book.id], book.id), reverse=reverse)
        return known + [book for book in books if values[book.id] is None]

    async def count(self) -> int:
        return await self.store.count(BOOKS_BY_TITLE)

    async def binned(self, query: PageQuery) -> Items[ShownBook]:
        """List the books in the bin, the oldest deletion first."""
        listed = await stored_page(self.store, BOOK, query, by=BIN)
        listed.total = await self.store.count(BIN)
        return listed.of(await self.show_all([entry.record for entry in listed.items]))

    async def newest(self, limit: int) -> list[ShownBook]:
        """Return the books that were added last."""
        newest: list[Book] = []
        async for entry in self.store.scan(BOOK, reverse=True):  # ids begin with their time
            if is_listed(entry.record):
                newest.append(entry.record)
            if len(newest) == limit:
                break
        return await self.show_all(newest)

    async def by_ids(self, ids: Sequence[str]) -> list[ShownBook]:
        """Return the books of these ids that are there and not in the bin."""
        rows = await self.store.get_many(BOOK, [{"id": id} for id in ids])
        return await self.show_all([book for book in rows if book is not None and is_listed(book)])

    async def in_series(self, series_id: str) -> list[Book]:
        """Return the books of a series in order."""
        rows = self.store.scan(BOOK, by=BOOKS_BY_SERIES, series_id=series_id)
        return [entry.record async for entry in rows]

    async def neighbours(self, book: Book) -> tuple[Book | None, Book | None]:
        """Return the books before and after one in its series."""
        books = [] if book.series_id is None else await self.in_series(book.series_id)
        for before, each, after in zip([None, *books], books, [*books[1:], None], strict=False):
            if each.id == book.id:
                return before, after
        return None, None

    async def tags(self) -> list[tuple[str, int]]:
        """Return the tags as their first book writes them, with their numbers of books."""
        template = self.store.binding.derived(BOOKS_BY_TAG).template
        counts: dict[str, int] = {}
        first: dict[str, str] = {}
        cursor: str | None = None
        while True:
            keys, cursor = await self.store.keys(BOOKS_BY_TAG, cursor=cursor)
            for fields in filter(None, map(template.parse, keys)):
                tag = str(fields["tag"])
                counts[tag] = counts.get(tag, 0) + 1
                first.setdefault(tag, str(fields["id"]))
            if cursor is None:
                break
        books = await self.store.get_many(BOOK, [{"id": id} for id in first.values()])
        return [
            (_written(tag, book), count)
            for (tag, count), book in zip(counts.items(), books, strict=True)
        ]

    # Writing

    async def create(self, body: BookBody) -> Entry[Book]:
        given = _changes(body)
        book = Book(id=self.library.new_id(), title=body.title)
        for name, value in given.items():
            setattr(book, name, value)
        with valid_body():
            return await self.store.put(BOOK, book, expect=None)

    async def change(
        self,
        id: str,
        body: BookBody | BookPatch,
        check: Check = unchecked,
        *,
        links: Callable[[Transaction, Book], Awaitable[Json]] | None = None,
    ) -> Entry[Book]:
        """Change the members that a body has; a member that a person changed is left alone by
        scans. `links` returns further members, in the same commit."""
        asked = _changes(body)

        async def work(tx: Transaction, entry: Entry[Book]) -> None:
            before = entry.record
            if is_binned(before):
                raise NotFoundError("The book is in the bin: restore it first.", id=id)
            given = asked if links is None else asked | await links(tx, before)
            changed = {
                name: value for name, value in given.items() if getattr(before, name) != value
            }
            if not changed:
                return
            work_id = changed.pop("work_id", before.work_id)
            edited = sorted({*(before.edited or ()), *changed})
            after = replace(before, **changed, edited=edited or UNSET)
            if work_id != before.work_id:
                await join_work(tx, after, work_id)
            else:
                await tx.put(BOOK, after)

        return await self.library.change(BOOK, check, work, id=id)

    async def bin(self, id: str, check: Check = unchecked) -> Entry[Book]:
        """Put a book into the bin. One that is there stays as it is."""
        now = self.library.now()

        async def work(tx: Transaction, entry: Entry[Book]) -> None:
            if is_listed(entry.record):
                await tx.put(BOOK, replace(entry.record, deleted_at=now))

        return await self.library.change(BOOK, check, work, id=id)

    async def restore(self, id: str, check: Check = unchecked) -> Entry[Book]:
        async def work(tx: Transaction, entry: Entry[Book]) -> None:
            if is_binned(entry.record):
                await tx.put(BOOK, replace(entry.record, deleted_at=UNSET))

        return await self.library.change(BOOK, check, work, id=id)

    async def purge(self, id: str, check: Check = unchecked) -> None:
        """Delete a binned book and all that belongs to it; its work loses its share of the
        statistics."""

        async def leave(tx: Transaction, entry: Entry[Book]) -> None:
            if is_listed(entry.record):
                raise ConflictError("Only a book in the bin can be purged: delete it first.", id=id)
            if entry.record.work_id is not None:
                await join_work(tx, entry.record, None)

        await self.library.change(BOOK, check, leave, id=id)
        hashes = await self._covers.hashes_of(id)
        await self.store.delete(BOOK, id=id)
        if hashes:
            await self._covers.remove_unused(hashes)


class _Filter:
    """One condition of a list: the index that answers it, and the same condition on a book. A
    partial index answers more: its keys hold the start of a long text."""

    def __init__(
        self,
        index: Index,
        accepts: Callable[[Book], bool],
        fields: Mapping[str, Any] | None = None,
        *,
        prefix: str | None = None,
        sorted_by: str = "",
        is_partial: bool = False,
    ) -> None:
        self.index = index
        self.accepts = accepts
        self.fields = dict(fields or {})
        self.prefix = prefix
        self.sorted_by = sorted_by
        self.is_partial = is_partial


_ALL: Final = _Filter(BOOKS_BY_TITLE, lambda book: True, sorted_by="title")


def _filters(query: BookQuery) -> list[_Filter]:
    filters: list[_Filter] = []
    if query.isbn is not None:
        filters.append(_isbn_filter(query.isbn))
    for name, index, order in (
        ("work_id", BOOKS_BY_WORK, ""),
        ("series_id", BOOKS_BY_SERIES, "series_position"),
        ("author_id", BOOKS_BY_AUTHOR, ""),
    ):
        value = getattr(query, name)
        if value is not None:
            filters.append(_Filter(index, _equals(name, value), {name: value}, sorted_by=order))
    for name, index in (("tag", BOOKS_BY_TAG), ("genre", BOOKS_BY_GENRE)):
        value = getattr(query, name)
        if value is not None:
            filters.append(_Filter(index, _includes(f"{name}s", value), {name: value}))
    if query.title_prefix is not None:
        start = normal(query.title_prefix)
        filters.append(
            _Filter(
                BOOKS_BY_TITLE,
                lambda book: book.normalized_title.startswith(start),
                prefix=start or None,
                sorted_by="title",
                is_partial=len(start) > _WHOLE_TITLE_CHARS,
            )
        )
    return filters


def _equals(name: str, value: str) -> Callable[[Book], bool]:
    return lambda book: getattr(book, name) == value


def _includes(name: str, value: str) -> Callable[[Book], bool]:
    wanted = normal(value)
    return lambda book: wanted in [normal(each) for each in getattr(book, name) or ()]


def _isbn_filter(text: str) -> _Filter:
    plain = text.replace("-", "").replace(" ", "")
    try:
        if len(plain) == _ISBN10_CHARS:
            number = isbn10(plain)
            return _Filter(BOOKS_BY_ISBN10, _equals("isbn10", number), {"isbn10": number})
        number = isbn13(plain)
    except RecordError as error:
        raise UsageError(error.sentence, isbn=text) from None
    return _Filter(BOOKS_BY_ISBN13, _equals("isbn13", number), {"isbn13": number})


def _changes(body: BookBody | BookPatch) -> Json:
    given = {name: value for name, value in asdict(body).items() if name in _EDITABLE}
    if isinstance(body, BookPatch):
        given = {name: value for name, value in given.items() if value is not UNSET}
    position = given.get("series_position")
    if position is not None and position == int(position):
        given["series_position"] = int(position)
    return given


def _shown(
    book: Book, author: str | None, series: str | None, durations: DurationMap | None
) -> ShownBook:
    return ShownBook(
        **{**asdict(book), "source": UNSET},
        author_name=author,
        series_name=series,
        duration=None if durations is None else durations.total_duration,
    )


def _written(tag: str, book: Book | None) -> str:
    """Return a tag as a book of it writes it."""
    return next((each for each in (book.tags if book else ()) if normal(each) == tag), tag)
