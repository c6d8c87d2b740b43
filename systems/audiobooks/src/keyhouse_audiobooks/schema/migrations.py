"""Migrations of the keyspace. `mig:<versionPadded>` and `meta:version` are the default of Meta."""

from typing import Final

from msgspec.structs import replace

from keyhouse.store import Entry, Store, Transaction
from keyhouse_audiobooks.records import Book, Series, Work
from keyhouse_audiobooks.schema.books import (
    AUTHOR,
    BIN_OF_WORK,
    BOOK,
    BOOKS_BY_WORK,
    SERIES,
    SERIES_BY_NAME_AND_AUTHOR,
    WORK,
    WORK_BY_TITLE,
)
from keyhouse_audiobooks.schema.listening import (
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
)

__all__ = [
    "backfill_work",
    "introduce_works",
    "join_work",
    "make_series_unique",
]


_STATISTICS: Final = (
    (BOOK_PLAYS, WORK_PLAYS),
    (BOOK_LISTEN_SECONDS, WORK_LISTEN_SECONDS),
)


async def join_work(tx: Transaction, book: Book, work_id: str | None) -> None:
    """Move a book to a work, or out of its work, and its statistics from the old work to the new
    one, in one commit."""
    for of_book, of_work in _STATISTICS:
        counted = await tx.get(of_book, book_id=book.id) or 0
        if book.work_id is not None:
            await tx.add(of_work, -counted, work_id=book.work_id)
        if work_id is not None:
            await tx.add(of_work, counted, work_id=work_id)
    await tx.put(BOOK, replace(book, work_id=work_id))


async def backfill_work(store: Store, work_id: str) -> None:
    """Store the statistics of a work: the sum of its books, those in the bin included."""
    ids = [
        entry.record.id
        for index in (BOOKS_BY_WORK, BIN_OF_WORK)
        async for entry in store.scan(BOOK, by=index, work_id=work_id)
    ]

    async def work(tx: Transaction) -> None:
        for of_book, of_work in _STATISTICS:
            stored = await tx.get(of_work, work_id=work_id) or 0
            total = sum([await tx.get(of_book, book_id=id) or 0 for id in ids])
            await tx.add(of_work, total - stored, work_id=work_id)

    await store.transact(work)


async def introduce_works(tx: Transaction, entry: Entry[Book]) -> None:
    """Assign a book without a work to the one of its title and author, creating it if there is
    none.

    A new work gets the ULID of its book, so that a repeated run creates no second one.
    """
    book = entry.record
    if book.work_id is not None:
        return
    author_id, series_id = book.author_id, book.series_id
    if author_id is not None and await tx.get(AUTHOR, id=author_id) is None:
        author_id = None  # another program has left it behind
    found = await tx.lookup(WORK, WORK_BY_TITLE, normalized_title=book.title, author_id=author_id)
    if found is not None:
        await join_work(tx, book, found.record.id)
        return
    if series_id is not None and await tx.get(SERIES, id=series_id) is None:
        series_id = None
    work = Work(id=book.id, title=book.title, author_id=author_id, series_id=series_id)
    await tx.put(WORK, work, expect=None)
    await join_work(tx, book, work.id)


async def make_series_unique(tx: Transaction, entry: Entry[Series]) -> None:
    """Make the index row of a series by name and author, which had its id in the key, unique.

    Of several series of one name and author, the first holds the row; `verify` reports the others.
    """
    index = tx.binding.derived(SERIES_BY_NAME_AND_AUTHOR)
    for key in index.rows(entry.record, entry.values):
        tx.write(f"{key}:{entry.record.id}", None)
        written = await tx.row(key)
        if written is None:
            tx.write(key, (index.contribution(entry.record, entry.values), None))
