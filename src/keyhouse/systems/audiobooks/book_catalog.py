"""Authors, series and works: idempotent creation, detaching and merging.

An author, series or work is deleted only when nothing refers to it. Detaching and merging change
one referring record per commit, so they can be repeated after an interruption.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from msgspec import UNSET
from msgspec.structs import asdict, replace

from keyhouse.errors import LinkError, NotFoundError, RecordError
from keyhouse.schema import Index, Record
from keyhouse.store import Entry, Transaction
from keyhouse.systems.audiobooks.library import Library, absent_reference, valid_body
from keyhouse.systems.audiobooks.records import Author, Book, Series, Work
from keyhouse.systems.audiobooks.schema import (
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

__all__ = ["BookCatalog"]

T = TypeVar("T")
Check = Callable[[int | None], None]

_DETACH_ROUNDS: Final = 3

Links = tuple[tuple[Record[Any], Index], ...]
_OF_AUTHOR: Final[Links] = (
    (BOOK, BOOKS_BY_AUTHOR),
    (BOOK, BIN_OF_AUTHOR),
    (SERIES, SERIES_OF_AUTHOR),
    (WORK, WORKS_OF_AUTHOR),
)
_OF_SERIES: Final[Links] = (
    (BOOK, BOOKS_BY_SERIES),
    (BOOK, BIN_OF_SERIES),
    (WORK, WORKS_OF_SERIES),
)
_OF_WORK: Final[Links] = ((BOOK, BOOKS_BY_WORK), (BOOK, BIN_OF_WORK))


class BookCatalog:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.store = library.store

    # Creation: the same name is the same record

    async def author(self, name: str) -> tuple[Entry[Author], bool]:
        """Return the author of this name, and whether it is new."""
        return await self._created(AUTHOR, lambda tx: self.author_in(tx, name))

    async def author_in(self, tx: Transaction, name: str) -> tuple[str, bool]:
        """Find or create an author in a transaction; return its id, and whether it is new."""
        found = await tx.lookup(AUTHOR, AUTHOR_BY_NAME, normalized_name=name)
        if found is not None:
            return found.record.id, False
        author = Author(id=self.library.new_id(), name=name)
        await tx.put(AUTHOR, author, expect=None)
        return author.id, True

    async def series(self, name: str, author_id: str | None) -> tuple[Entry[Series], bool]:
        return await self._created(SERIES, lambda tx: self.series_in(tx, name, author_id))

    async def series_in(
        self, tx: Transaction, name: str, author_id: str | None
    ) -> tuple[str, bool]:
        found = await tx.lookup(
            SERIES, SERIES_BY_NAME_AND_AUTHOR, normalized_name=name, author_id=author_id
        )
        if found is not None:
            return found.record.id, False
        series = Series(id=self.library.new_id(), name=name, author_id=author_id)
        await tx.put(SERIES, series, expect=None)
        return series.id, True

    async def work(
        self,
        title: str,
        author_id: str | None,
        series_id: str | None = None,
        alt_titles: list[str] | None = None,
    ) -> tuple[Entry[Work], bool]:
        return await self._created(
            WORK, lambda tx: self.work_in(tx, title, author_id, series_id, alt_titles)
        )

    async def work_in(
        self,
        tx: Transaction,
        title: str,
        author_id: str | None,
        series_id: str | None = None,
        alt_titles: list[str] | None = None,
    ) -> tuple[str, bool]:
        found = await tx.lookup(WORK, WORK_BY_TITLE, normalized_title=title, author_id=author_id)
        if found is not None:
            return found.record.id, False
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
        self, record: Record[T], work: Callable[[Transaction], Awaitable[tuple[str, bool]]]
    ) -> tuple[Entry[T], bool]:
        with valid_body():
            try:
                id, is_new = await self.store.transact(work)
            except LinkError as error:
                raise absent_reference(error) from None
        return await self.library.require(record, record.name, id=id), is_new

    # Changes

    async def change(self, record: Record[T], id: str, body: Any, check: Check) -> Entry[T]:
        """Change the members that the body has."""
        given = {name: value for name, value in asdict(body).items() if value is not UNSET}

        async def work(tx: Transaction, entry: Entry[T]) -> None:
            await tx.put(record, replace(entry.record, **given))  # type: ignore[type-var]

        try:
            return await self.library.change(record, record.name, check, work, id=id)
        except LinkError as error:
            raise absent_reference(error) from None

    # Deletion

    async def delete_author(self, id: str, check: Check, *, detach: bool) -> None:
        await self._delete(AUTHOR, id, check, "author_id", _OF_AUTHOR if detach else ())

    async def delete_series(self, id: str, check: Check, *, detach: bool) -> None:
        await self._delete(SERIES, id, check, "series_id", _OF_SERIES if detach else ())

    async def delete_work(self, id: str, check: Check, *, detach: bool) -> None:
        await self._delete(WORK, id, check, "work_id", _OF_WORK if detach else ())

    async def _delete(
        self, record: Record[Any], id: str, check: Check, member: str, links: Links
    ) -> None:
        entry = await self.library.require(record, record.name, id=id)
        check(entry.revision)
        for round in range(_DETACH_ROUNDS):
            async for child, other in self._referring(links, member, id):
                await self._set(child, other, member, id, None)
            try:
                await self.store.delete(record, id=id)
                return
            except LinkError as error:
                if not links or round == _DETACH_ROUNDS - 1:
                    raise LinkError(
                        "Books or other records refer to it: add ?detach=true.", **error.fields
                    ) from None

    async def _referring(
        self, links: Links, member: str, id: str
    ) -> AsyncIterator[tuple[Record[Any], str]]:
        """Iterate over the ids of the records that refer to one."""
        fields: dict[str, Any] = {member: id}
        for record, index in links:
            found = self.store.scan(record, by=index, **fields)
            ids = [entry.record.id async for entry in found]
            for each in ids:
                yield record, each

    async def _set(
        self, record: Record[Any], id: str, member: str, before: str, after: str | None
    ) -> None:
        """Change one reference, if it still is the one that was found."""

        async def work(tx: Transaction) -> None:
            found = await tx.get(record, id=id)
            if found is None or getattr(found, member) != before:
                return
            if member == "work_id":
                await join_work(tx, found, after)
            else:
                await tx.put(record, replace(found, **{member: after}))

        await self.store.transact(work)

    # Merging

    async def merge_authors(self, keep_id: str, merge_ids: list[str]) -> Entry[Author]:
        """Move everything of some authors to another one, and delete them.

        A series or work that the kept author has as well is merged into that one.
        """
        await self.library.require(AUTHOR, "author", id=keep_id)
        if keep_id in merge_ids:
            raise RecordError("An author cannot be merged into itself.", keep_id=keep_id)
        rows = await self.store.get_many(AUTHOR, [{"id": id} for id in merge_ids])
        for id, author in zip(merge_ids, rows, strict=True):
            if author is None:
                raise NotFoundError("There is no such author.", id=id)
        for id in dict.fromkeys(merge_ids):
            await self._merge_series(keep_id, id)
            await self._merge_works(keep_id, id)
            async for record, other in self._referring(_OF_AUTHOR, "author_id", id):
                await self._set(record, other, "author_id", id, keep_id)
            await self.store.delete(AUTHOR, id=id)
        return await self.library.require(AUTHOR, "author", id=keep_id)

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
                async for record, other in self._referring(_OF_SERIES, "series_id", series.id):
                    await self._set(record, other, "series_id", series.id, same.record.id)
                await self.store.delete(SERIES, id=series.id)

    async def _merge_works(self, keep_id: str, id: str) -> None:
        async for entry in self.store.scan(WORK, by=WORKS_OF_AUTHOR, author_id=id):
            work = entry.record
            same = await self.store.lookup(
                WORK, WORK_BY_TITLE, normalized_title=work.title, author_id=keep_id
            )
            if same is not None:
                async for record, other in self._referring(_OF_WORK, "work_id", work.id):
                    await self._set(record, other, "work_id", work.id, same.record.id)
                await self.store.delete(WORK, id=work.id)

    # Books of one

    async def books(self, index: Index, **fields: Any) -> list[Book]:
        return [entry.record async for entry in self.store.scan(BOOK, by=index, **fields)]
