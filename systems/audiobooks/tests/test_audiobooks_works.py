"""The introduction of works (v1.1.0): old data migrated is new data written."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import NewerError
from keyhouse.store import Store, migrate, verify
from keyhouse_audiobooks.records import Book, Series, Work
from keyhouse_audiobooks.schema import (
    AUTHOR,
    BOOK,
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    SCHEMAS,
    SERIES,
    WORK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
    join_work,
)
from tests.support.library_stubs import holds, rows, stub
from tests.support.store_driver import NOW_TEXT, Drive, ulid

[SCHEMA] = SCHEMAS
AUTHOR_ID = ulid(1)
BOOKS: list[tuple[str, str, str | None]] = [
    (ulid(11), "Dune", AUTHOR_ID),
    (ulid(12), "DUNE ", AUTHOR_ID),
    (ulid(13), "Dune", None),
    (ulid(14), "Dune: Messiah", AUTHOR_ID),
]
WORKS = {ulid(11): ulid(11), ulid(12): ulid(11), ulid(13): ulid(13), ulid(14): ulid(14)}
"""Which work each book comes to: the one of its title and author, which has the ULID of the first
such book."""


async def old_data(engine: Engine, space: str) -> None:
    """Rows as the document's second copy, of before works, has them."""
    puts: list[Put] = []
    for number, (identifier, title, author) in enumerate(BOOKS, 1):
        normalized = " ".join(title.lower().split())
        book: dict[str, Any] = {
            "id": identifier,
            "title": title,
            "normalized_title": normalized,
            "author_id": author,
            "series_id": None,
            "series_position": None,
            "description": "",
            "published_year": 1965,
            "cover_asset_id": None,
            "tags": ["sf"],
            "created_at": NOW_TEXT,
            "updated_at": NOW_TEXT,
            "version": 1,
        }
        puts += [
            Put(f"b:{identifier}", msgspec.json.encode(book)),
            Put(f"idx:book:title:{normalized.replace(':', '%3A')}:{identifier}", b"1"),
            Put(f"idx:book:tag:sf:{identifier}", b"1"),
            Put(f"stats:book:plays:{identifier}", str(number).encode()),
        ]
        if author is not None:
            puts.append(Put(f"idx:book:author:{author}:{identifier}", b"1"))
    puts.append(Put(f"stats:book:listen_seconds:{BOOKS[0][0]}", b"600"))
    await engine.commit(space, Batch(puts=tuple(puts)))


async def new_data(store: Store) -> None:
    """Write that library with the current code."""
    for number, (identifier, title, author) in enumerate(BOOKS, 1):
        work_id = WORKS[identifier]
        if work_id == identifier:
            await store.put(WORK, Work(id=work_id, title=title, author_id=author))
        await store.put(
            BOOK,
            Book(
                id=identifier,
                title=title,
                author_id=author,
                work_id=work_id,
                published_year=1965,
                tags=["sf"],
            ),
        )
        await store.add(BOOK_PLAYS, number, book_id=identifier)
        await store.add(WORK_PLAYS, number, work_id=work_id)
    await store.add(BOOK_LISTEN_SECONDS, 600, book_id=BOOKS[0][0])
    await store.add(WORK_LISTEN_SECONDS, 600, work_id=WORKS[BOOKS[0][0]])


def of_the_library(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if not key.startswith(("meta:", "mig:"))}


def test_old_data_migrated_equals_new_data_written(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        old, new = Store(SCHEMA, engine, "old"), Store(SCHEMA, engine, "new")
        await stub(old, AUTHOR, AUTHOR_ID)
        await stub(new, AUTHOR, AUTHOR_ID)
        await old_data(engine, "old")
        await new_data(new)
        await holds(old, await rows(old))

        done, *reindexed = await migrate(old)
        assert done.records == 4 and len(reindexed) == SCHEMA.version - 1
        migrated = await rows(old)
        assert of_the_library(migrated) == await rows(new)
        assert migrated["meta:version"] == SCHEMA.version
        assert migrated["mig:000001"] == {
            "id": 1,
            "applied_at": NOW_TEXT,
            "description": "Work introduction (v1.1.0)",
            "duration_ms": 0,
            "counts": {"records": 4, "rows": done.rows},
        }
        await holds(old, migrated)

        assert await migrate(old) == []
        await holds(old, migrated)

    drive(work)


def test_a_dry_run_writes_nothing(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "old")
        await stub(store, AUTHOR, AUTHOR_ID)
        await old_data(engine, "old")
        before = await rows(store)
        done, *_ = await migrate(store, dry_run=True)
        assert done.records == 4 and done.rows > 0
        await holds(store, before)

    drive(work)


def test_a_new_library_is_migrated_and_a_newer_one_rejected(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "new")
        await migrate(store)
        assert (await rows(store))["meta:version"] == SCHEMA.version
        newer = str(SCHEMA.version + 1).encode()
        await engine.commit("new", Batch(puts=(Put("meta:version", newer),)))
        with pytest.raises(NewerError):
            await migrate(store)

    drive(work)


def test_series_become_unique_by_name_and_author(drive: Drive) -> None:
    """Two series of one name and author could be stored: a rescan or a race made duplicates."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "library-1")
        first, second, other, author = (ulid(number) for number in (41, 42, 43, 44))
        await stub(store, AUTHOR, author)
        series = [
            Series(id=first, name="Chronicles", author_id=author),
            Series(id=second, name="chronicles", author_id=author),
            Series(id=other, name="Chronicles"),
        ]
        puts = [Put("meta:version", b"1"), Put("idx:series:name:chronicles", f'"{first}"'.encode())]
        for each in series:
            named = SERIES.unbound.compute(each)
            owner = each.author_id or "null"
            puts.append(Put(f"s:{each.id}", SERIES.json.encode(named)))
            puts.append(Put(f"idx:series:name_author:chronicles:{owner}:{each.id}", b"1"))
            if each.author_id is not None:
                puts.append(Put(f"idx:series:author:{each.author_id}:{each.id}", b"1"))
        await engine.commit("library-1", Batch(puts=tuple(puts)))
        await migrate(store)
        found = {key: value for key, value in (await rows(store)).items() if "name_author" in key}
        assert found == {
            f"idx:series:name_author:chronicles:{author}": first,
            "idx:series:name_author:chronicles:null": other,
        }
        assert [finding.kind async for finding in verify(store)] == ["conflict"]
        await store.put(SERIES, Series(id=second, name="Chronicles II", author_id=author))
        await holds(store, await rows(store))

    drive(work)


def test_moving_a_book_moves_its_statistics_to_the_new_work(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "library-1")
        one, other = ulid(21), ulid(22)
        await stub(store, WORK, one, other)
        book = Book(id=ulid(31), title="Dune", work_id=one)
        await store.put(BOOK, book)
        await store.put(BOOK, replace(book, id=ulid(32)))
        for identifier, plays in ((ulid(31), 3), (ulid(32), 4)):
            await store.add(BOOK_PLAYS, plays, book_id=identifier)
            await store.add(WORK_PLAYS, plays, work_id=one)
        await store.transact(lambda tx: join_work(tx, book, other))
        assert await store.get(WORK_PLAYS, work_id=one) == 4
        assert await store.get(WORK_PLAYS, work_id=other) == 3
        moved = await store.get(BOOK, id=ulid(31))
        assert moved is not None and moved.work_id == other
        await holds(store, await rows(store))
        await store.transact(lambda tx: join_work(tx, moved, None))
        assert await store.get(WORK_PLAYS, work_id=other) == 0
        detached = await store.get(BOOK, id=ulid(31))
        assert detached is not None and detached.work_id is None

    drive(work)
