"""Case 3b: put of an audiobook with its eight index rows, which have `when` and `each`.

The baseline also looks whether author, series and work of each book exist, in the transaction that
writes it. The store does more: it notices a deletion of one of them that is under way.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from keyhouse import Store, SystemClock, UlidSource, normal, open_engine
from keyhouse.bench.baseline_sqlite import UPSERT, BareSqlite
from keyhouse.bench.comparison import compare
from keyhouse.bench.keyspace import SPACE, WRITERS
from keyhouse.bench.result import Result
from keyhouse.schema import SECONDS
from keyhouse_audiobooks.books.isbn import isbn10, isbn13
from keyhouse_audiobooks.records import Author, Book, Series, Work
from keyhouse_audiobooks.schema import AUTHOR, BOOK, SCHEMAS, SERIES, WORK

Rows = list[tuple[str, bytes]]

_EXISTS = "SELECT 1 FROM rows WHERE space = ? AND key = ?"

_LIBRARY = next(schema for schema in SCHEMAS if BOOK in schema.records)


async def measure(folder: Path, rounds: int, size: int) -> Result:
    ids = UlidSource(SystemClock())
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(_LIBRARY, engine, SPACE)
    bare = BareSqlite(folder / "baseline.db")
    author = ids.new()
    values = iter([_books(ids, author, size) for _ in range(2 * rounds)])
    revisions = iter(range(1, 1_000_000_000))

    async def ours() -> int:
        pending = iter(next(values))

        async def writer() -> None:
            for book in pending:
                await store.put(BOOK, book)

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return size

    async def by_hand() -> int:
        now = SECONDS.format(engine.clock.now())
        books = next(values)
        for start in range(0, size, WRITERS):
            _put_group(bare, books[start : start + WRITERS], now, next(revisions))
        return size

    await store.put(AUTHOR, Author(id=author, name="Ann Author"))
    await store.put(SERIES, Series(id=author, name="Evenings"))
    await store.put(WORK, Work(id=author, title="Evenings"))
    referred = [(f"{kind}:{author}", b"{}") for kind in "asw"]
    bare.put(SPACE, referred, next(revisions))
    await _check_same_rows(store, ids, author)
    measured = await compare({"ours": ours, "baseline": by_hand}, rounds=rounds)
    await engine.close()
    bare.close()
    return Result(
        case="3b",
        work=f"put of an audiobook, 8 index rows, {WRITERS} writers",
        unit="records/s",
        measurements=list(measured.values()),
        goal=0.50,
        baseline="apsw by hand",
    )


def _books(ids: UlidSource, author: str, size: int) -> list[Book]:
    return [
        Book(
            id=ids.new(),
            title=f"Book {number} of the Evening",
            author_id=author,
            series_id=author,
            series_position=number % 1_000,
            work_id=author,
            narrator="Ann Other",
            language="en",
            isbn10="0306406152",
            isbn13="9780306406157",
            description="A slow build over nine chapters, read live in one take.",
            tags=["Night"],
            genres=["Post Rock"],
        )
        for number in range(size)
    ]


def _put_group(bare: BareSqlite, books: Sequence[Book], now: str, revision: int) -> None:
    execute = bare.connection.execute
    execute("BEGIN IMMEDIATE")
    for book in books:
        for key in (f"a:{book.author_id}", f"s:{book.series_id}", f"w:{book.work_id}"):
            assert execute(_EXISTS, (SPACE, key)).get, key
    rows = [(SPACE, key, value, revision) for book in books for key, value in _rows(book, now)]
    bare.connection.executemany(UPSERT, rows)
    execute("COMMIT")


def _rows(book: Book, now: str) -> Rows:
    """Return the nine rows that the store writes for a new book."""
    id, title = book.id, normal(book.title)
    isbns = isbn10(book.isbn10 or ""), isbn13(book.isbn13 or "")
    stored = msgspec.structs.replace(
        book,
        normalized_title=title,
        isbn10=isbns[0],
        isbn13=isbns[1],
        created_at=now,
        updated_at=now,
        version=1,
    )
    rows = [(f"b:{id}", msgspec.json.encode(stored))]
    if not book.deleted_at:
        rows.append((f"idx:book:author:{book.author_id}:{id}", b"1"))
        position = f"{round((book.series_position or 0) * 1_000):010d}"
        rows.append((f"idx:book:series:{book.series_id}:{position}:{id}", b"1"))
        rows.append((f"idx:book:title:{title}:{id}", b"1"))
        rows += [(f"idx:book:tag:{normal(tag)}:{id}", b"1") for tag in book.tags]
        rows += [(f"idx:book:genre:{normal(genre)}:{id}", b"1") for genre in book.genres or ()]
        rows.append((f"idx:book:isbn10:{isbns[0]}:{id}", b"1"))
        rows.append((f"idx:book:isbn13:{isbns[1]}:{id}", b"1"))
        rows.append((f"idx:book:work:{book.work_id}:{id}", b"1"))
    return rows


async def _check_same_rows(store: Store, ids: UlidSource, author: str) -> None:
    """Refuse to compare with work that is not the same."""
    [book] = _books(ids, author, 1)
    entry = await store.put(BOOK, book)
    expected: Sequence[tuple[str, bytes]] = sorted(_rows(book, entry.record.created_at))
    found = sorted([(row.key, row.value) async for row in store.row_scan() if book.id in row.key])
    assert found == expected, (found, expected)
    await store.delete(BOOK, id=book.id)
