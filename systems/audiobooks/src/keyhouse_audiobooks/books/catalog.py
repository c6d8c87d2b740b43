"""Authors, series and works: lists, idempotent creation, detaching and merging.

An author, series or work is deleted only when nothing refers to it. Detaching and merging change
one referring record per commit, so they can be repeated after an interruption.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from keyhouse.errors import LinkError, NotFoundError, RecordError
from keyhouse.keys import normal
from keyhouse.schema import Index, Record
from keyhouse.store import Entry, Store, Transaction
from keyhouse_audiobooks.books.messages import (
    NamedSeries,
    NameQuery,
    ShownAuthor,
    ShownSeries,
    ShownWork,
)
from keyhouse_audiobooks.library import Check, Library, unchecked, valid_body
from keyhouse_audiobooks.lists import Items, stored_page
from keyhouse_audiobooks.records import Author, Book, Series, Work
from keyhouse_audiobooks.schema import (
    AUTHOR,
    AUTHOR_BY_NAME,
    BIN_OF_AUTHOR,
    BIN_OF_SERIES,
    BIN_OF_WORK,
    BOOK,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_SERIES,
    BOOKS_BY_WORK,
    SERIES,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    WORK,
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
    WORKS_OF_SERIES,
    join_work,
)

__all__ = ["AUTHORS", "SERIES_KIND", "WORKS", "BookCatalog", "Kind", "names_of"]

T = TypeVar("T")
Created = Awaitable[tuple[str, bool]]

_DETACH_ROUNDS: Final = 3


class Kind(Struct, Generic[T], frozen=True):
    """Authors, series or works: the record, the type of its replies, the indexes of lists, and the
    records that refer to one, each by an index and by `member`."""

    record: Record[Any]
    shown: Callable[..., T]
    member: str
    by_name: Index
    of_author: Index | None
    books: Index
    links: tuple[tuple[Record[Any], Index], ...]

    def refers(self, id: str) -> dict[str, Any]:
        """Return the field of the keys of what refers to one."""
        return {self.member: id}


AUTHORS: Final = Kind(
    AUTHOR,
    ShownAuthor,
    "author_id",
    AUTHOR_BY_NAME,
    None,
    BOOKS_BY_AUTHOR,
    (
        (BOOK, BOOKS_BY_AUTHOR),
        (BOOK, BIN_OF_AUTHOR),
        (SERIES, SERIES_OF_AUTHOR),
        (WORK, WORKS_OF_AUTHOR),
    ),
)
SERIES_KIND: Final = Kind(
    SERIES,
    ShownSeries,
    "series_id",
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    BOOKS_BY_SERIES,
    ((BOOK, BOOKS_BY_SERIES), (BOOK, BIN_OF_SERIES), (WORK, WORKS_OF_SERIES)),
)
WORKS: Final = Kind(
    WORK,
    ShownWork,
    "work_id",
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
    BOOKS_BY_WORK,
    ((BOOK, BOOKS_BY_WORK), (BOOK, BIN_OF_WORK)),
)


class BookCatalog:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.store = library.store

    # Creation: the same name is the same record

    async def author(self, name: str) -> tuple[Entry[ShownAuthor], bool]:
        """Return the author of this name, and whether it is new."""
        return await self._created(AUTHORS, lambda tx: self.author_in(tx, name))

    async def author_in(self, tx: Transaction, name: str) -> tuple[str, bool]:
        """Find or create an author in a transaction; return its id, and whether it is new."""
        entry = await tx.lookup(AUTHOR, AUTHOR_BY_NAME, normalized_name=name)
        if entry is not None:
            return entry.record.id, False
        author = Author(id=self.library.new_id(), name=name)
        await tx.put(AUTHOR, author, expect=None)
        return author.id, True

    async def series(self, name: str, author_id: str | None) -> tuple[Entry[ShownSeries], bool]:
        return await self._created(SERIES_KIND, lambda tx: self.series_in(tx, name, author_id))

    async def series_in(
        self, tx: Transaction, name: str, author_id: str | None
    ) -> tuple[str, bool]:
        entry = await tx.lookup(
            SERIES, SERIES_BY_NAME_AND_AUTHOR, normalized_name=name, author_id=author_id
        )
        if entry is not None:
            return entry.record.id, False
        series = Series(id=self.library.new_id(), name=name, author_id=author_id)
        await tx.put(SERIES, series, expect=None)
        return series.id, True

    async def work(
        self,
        title: str,
        author_id: str | None,
        series_id: str | None = None,
        alt_titles: list[str] | None = None,
    ) -> tuple[Entry[ShownWork], bool]:
        return await self._created(
            WORKS, lambda tx: self.work_in(tx, title, author_id, series_id, alt_titles)
        )

    async def work_in(
        self,
        tx: Transaction,
        title: str,
        author_id: str | None,
        series_id: str | None = None,
        alt_titles: list[str] | None = None,
    ) -> tuple[str, bool]:
        entry = await tx.lookup(WORK, WORK_BY_TITLE, normalized_title=title, author_id=author_id)
        if entry is not None:
            return entry.record.id, False
        made = Work(
            id=self.library.new_id(),
            title=title,
            author_id=author_id,
            series_id=series_id,
            alt_titles=alt_titles or [],
        )
        await tx.put(WORK, made, expect=None)
        return made.id, True

    async def _created(
        self, kind: Kind[T], work: Callable[[Transaction], Created]
    ) -> tuple[Entry[T], bool]:
        with valid_body():
            id, is_new = await self.store.transact(work)
        return await self.get(kind, id), is_new

    # Changes

    async def change(self, kind: Kind[T], id: str, body: Any, check: Check = unchecked) -> Entry[T]:
        """Change the members that the body has."""
        record = kind.record
        given = {name: value for name, value in asdict(body).items() if value is not UNSET}

        async def work(tx: Transaction, entry: Entry[Any]) -> None:
            await tx.put(record, replace(entry.record, **given))

        return await self._shown(kind, await self.library.change(record, check, work, id=id))

    # Deletion

    async def delete(self, kind: Kind[Any], id: str, check: Check, *, detach: bool) -> None:
        """Delete one that nothing refers to; with `detach`, remove the references first."""
        entry = await self.library.require(kind.record, id=id)
        check(entry.revision)
        for round in range(_DETACH_ROUNDS):
            if detach:
                await self._move_references(kind, id, None)
            try:
                await self.store.delete(kind.record, id=id)
                return
            except LinkError as error:
                if not detach or round == _DETACH_ROUNDS - 1:
                    raise LinkError(
                        "Books or other records refer to it: add ?detach=true.", **error.fields
                    ) from None

    async def _move_references(self, kind: Kind[Any], id: str, to: str | None) -> None:
        """Let the records that refer to one refer to another one, or to none."""
        for record, index in kind.links:
            entries = self.store.scan(record, by=index, **kind.refers(id))
            for other in [entry.record.id async for entry in entries]:
                await self._set(record, other, kind.member, id, to)

    async def _set(
        self, record: Record[Any], id: str, member: str, before: str, after: str | None
    ) -> None:
        """Change one reference, if it still is the one that was found."""

        async def work(tx: Transaction) -> None:
            value = await tx.get(record, id=id)
            if value is None or getattr(value, member) != before:
                return
            if member == "work_id":
                await join_work(tx, value, after)
            else:
                await tx.put(record, replace(value, **{member: after}))

        await self.store.transact(work)

    # Merging

    async def merge_authors(self, keep_id: str, merge_ids: list[str]) -> Entry[ShownAuthor]:
        """Move everything of some authors to another one, and delete them.

        A series or work that the kept author has as well is merged into that one.
        """
        await self.library.require(AUTHOR, id=keep_id)
        if keep_id in merge_ids:
            raise RecordError("An author cannot be merged into itself.", keep_id=keep_id)
        rows = await self.store.get_many(AUTHOR, [{"id": id} for id in merge_ids])
        for id, author in zip(merge_ids, rows, strict=True):
            if author is None:
                raise NotFoundError("There is no such author.", id=id)
        for id in dict.fromkeys(merge_ids):
            await self._merge_series(keep_id, id)
            await self._merge_works(keep_id, id)
            await self._move_references(AUTHORS, id, keep_id)
            await self.store.delete(AUTHOR, id=id)
        return await self.get(AUTHORS, keep_id)

    async def _merge_series(self, keep_id: str, id: str) -> None:
        async for entry in self.store.scan(SERIES, by=SERIES_OF_AUTHOR, author_id=id):
            series = entry.record
            same = await self.store.lookup(
                SERIES,
                SERIES_BY_NAME_AND_AUTHOR,
                normalized_name=series.name,
                author_id=keep_id,
            )
            if same is not None:
                await self._move_references(SERIES_KIND, series.id, same.record.id)
                await self.store.delete(SERIES, id=series.id)

    async def _merge_works(self, keep_id: str, id: str) -> None:
        async for entry in self.store.scan(WORK, by=WORKS_OF_AUTHOR, author_id=id):
            work = entry.record
            same = await self.store.lookup(
                WORK, WORK_BY_TITLE, normalized_title=work.title, author_id=keep_id
            )
            if same is not None:
                await self._move_references(WORKS, work.id, same.record.id)
                await self.store.delete(WORK, id=work.id)

    # Reading

    async def page(self, kind: Kind[T], query: NameQuery) -> Items[T]:
        """List records by name; with `author_id`, those of one author."""
        options: dict[str, Any] = {"by": kind.by_name}
        if query.author_id is not None and kind.of_author is not None:
            options = {"by": kind.of_author, "author_id": query.author_id}
        elif query.name_prefix is not None:
            options["prefix"] = normal(query.name_prefix) or None
        listed = await stored_page(self.store, kind.record, query, **options)
        return listed.of([(await self._shown(kind, entry)).record for entry in listed.items])

    async def get(self, kind: Kind[T], id: str) -> Entry[T]:
        """Return one; NotFoundError if there is none."""
        entry = await self.library.require(kind.record, id=id)
        return await self._shown(kind, entry)

    async def count(self, kind: Kind[Any]) -> int:
        return await self.store.count(kind.record)

    async def books(self, kind: Kind[Any], id: str) -> list[Book]:
        """Return the books of one, in the order of their index."""
        await self.library.require(kind.record, id=id)
        entries = self.store.scan(BOOK, by=kind.books, **kind.refers(id))
        return [entry.record async for entry in entries]

    async def names(self, kind: Kind[Any], limit: int) -> list[str]:
        """Return the first names, each once."""
        page = await self.store.page(kind.record, by=kind.by_name, limit=limit)
        return [*dict.fromkeys(entry.record.name for entry in page.entries)]

    async def with_authors(self, series: Sequence[ShownSeries]) -> list[NamedSeries]:
        authors = await names_of(self.store, AUTHOR, [each.author_id for each in series])
        return [
            NamedSeries(**asdict(each), author_name=authors.get(each.author_id)) for each in series
        ]

    async def _shown(self, kind: Kind[T], entry: Entry[Any]) -> Entry[T]:
        count = await self.store.count(kind.books, **kind.refers(entry.record.id))
        return replace(entry, record=kind.shown(**asdict(entry.record), book_count=count))


async def names_of(
    store: Store, record: Record[Any], ids: Iterable[str | None]
) -> dict[str | None, str]:
    """Return the names of authors or series, by id."""
    known = [id for id in dict.fromkeys(ids) if id is not None]
    rows = await store.get_many(record, [{"id": id} for id in known])
    return {id: row.name for id, row in zip(known, rows, strict=True) if row is not None}
