"""Rows of the audiobook library: what each entity of the catalog writes, moves and deletes.

Users are in `test_audiobooks_users`.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import LinkError, RecordError, UniqueError
from keyhouse.store import Store
from keyhouse_audiobooks.records import (
    Author,
    Book,
    DurationMap,
    Operation,
    OperationLine,
    PlaybackEvent,
    Playlist,
    Segment,
    Series,
    Work,
)
from keyhouse_audiobooks.schema import (
    AUTHOR,
    BOOK,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_ISBN13,
    BOOKS_BY_SERIES,
    BOOKS_BY_TAG,
    BOOKS_BY_TITLE,
    DURATION_MAP,
    NEXT_SEQ,
    OPERATION,
    OPERATION_LOG,
    PLAYBACK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PREFERENCE,
    SCHEMAS,
    SEGMENT,
    SERIES,
    SERIES_BY_NAME,
    SERIES_BY_NAME_AND_AUTHOR,
    USER,
    WORK,
    WORK_BY_TITLE,
)
from tests.support.library_stubs import holds, rows, stub
from tests.support.store_driver import NOW_TEXT, Drive, ulid, written

[SCHEMA] = SCHEMAS
ONE, TWO, THREE, FOUR, FIVE = (ulid(number) for number in range(1, 6))
LATER_TEXT = "2026-01-01T00:01:00Z"


def library(engine: Engine) -> Store:
    return Store(SCHEMA, engine, "library-1")


def test_author_names_are_unique(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await store.put(AUTHOR, Author(id=ONE, name="Ursula  K. LE GUIN"))
        author: dict[str, Any] = {
            "id": ONE,
            "name": "Ursula  K. LE GUIN",
            "normalized_name": "ursula k. le guin",
        }
        author |= {"created_at": NOW_TEXT, "version": 1}
        await holds(store, {f"a:{ONE}": author, "idx:author:name:ursula k. le guin": ONE})
        with pytest.raises(UniqueError):
            await store.put(AUTHOR, Author(id=TWO, name="ursula k. le guin"))
        await store.put(AUTHOR, Author(id=ONE, name="Le Guin: Ursula"))
        assert sorted(await rows(store)) == [f"a:{ONE}", "idx:author:name:le guin: ursula"]
        await holds(store, await rows(store))
        await store.delete(AUTHOR, id=ONE)
        await holds(store, {})

    drive(work)


def test_two_authors_may_have_series_of_one_name(
    drive: Drive,
) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, AUTHOR, ONE, TWO)
        await store.put(SERIES, Series(id=THREE, name="Chronicles", author_id=ONE))
        await store.put(SERIES, Series(id=FOUR, name="CHRONICLES", author_id=TWO))
        await store.put(SERIES, Series(id=FIVE, name="chronicles"))

        async def indexes() -> dict[str, Any]:
            found = await rows(store)
            await holds(store, found)
            return {key: value for key, value in found.items() if key.startswith("idx:")}

        assert await indexes() == {
            "idx:series:name:chronicles": THREE,
            f"idx:series:name_author:chronicles:{ONE}": THREE,
            f"idx:series:name_author:chronicles:{TWO}": FOUR,
            "idx:series:name_author:chronicles:null": FIVE,
            f"idx:series:author:{ONE}:{THREE}": 1,
            f"idx:series:author:{TWO}:{FOUR}": 1,
        }
        for author, series in ((ONE, THREE), (TWO, FOUR), (None, FIVE)):
            page = await store.page(
                SERIES, by=SERIES_BY_NAME_AND_AUTHOR, normalized_name="Chronicles", author_id=author
            )
            assert [entry.record.id for entry in page.entries] == [series]

        with pytest.raises(UniqueError):
            await store.put(SERIES, Series(id=ulid(77), name=" chronicles", author_id=TWO))
        await store.put(SERIES, Series(id=THREE, name="Annals", author_id=None))
        found = await store.lookup(SERIES, SERIES_BY_NAME, normalized_name="chronicles")
        assert found is not None and found.record.id == FOUR
        assert await indexes() == {
            "idx:series:name:annals": THREE,
            "idx:series:name:chronicles": FOUR,
            "idx:series:name_author:annals:null": THREE,
            f"idx:series:name_author:chronicles:{TWO}": FOUR,
            "idx:series:name_author:chronicles:null": FIVE,
            f"idx:series:author:{TWO}:{FOUR}": 1,
        }
        await store.delete(SERIES, id=FIVE)
        await store.delete(SERIES, id=FOUR)
        assert await indexes() == {
            "idx:series:name:annals": THREE,
            "idx:series:name_author:annals:null": THREE,
        }
        await store.delete(SERIES, id=THREE)
        await holds(store, {})

    drive(work)


def test_a_work_is_found_by_its_title_and_author(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, AUTHOR, ONE)
        await store.put(WORK, Work(id=TWO, title="2001: A Space Odyssey", author_id=ONE))
        await store.put(WORK, Work(id=THREE, title="2001: a space odyssey"))
        with pytest.raises(UniqueError):
            await store.put(WORK, Work(id=FOUR, title="2001: A SPACE ODYSSEY", author_id=ONE))
        found = await rows(store)
        assert {key: value for key, value in found.items() if key.startswith("idx:")} == {
            f"idx:work:title:2001%3A a space odyssey:author:{ONE}": TWO,
            "idx:work:title:2001%3A a space odyssey:author:null": THREE,
            f"idx:work:author:{ONE}:{TWO}": 1,
        }
        await holds(store, found)
        await store.put(WORK, Work(id=THREE, title="Beowulf"))
        entry = await store.lookup(WORK, WORK_BY_TITLE, normalized_title="BEOWULF", author_id=None)
        assert entry is not None and entry.record.id == THREE
        await store.delete(WORK, id=TWO)
        await store.delete(WORK, id=THREE)
        await holds(store, {})

    drive(work)


def test_a_books_rows_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        book = Book(
            id=ONE,
            title="A Wizard of Earthsea",
            author_id=TWO,
            series_id=THREE,
            series_position=1.5,
            work_id=FOUR,
            isbn10="0-8044-2957-x",
            isbn13="978-0-306-40615-7",
            tags=["Fantasy", "FANTASY ", "mood: calm"],
            genres=["Novel"],
        )
        await stub(store, AUTHOR, TWO)
        await stub(store, SERIES, THREE, FIVE)
        await stub(store, WORK, FOUR)
        await store.put(BOOK, book)
        await store.put(DURATION_MAP, DurationMap(), book_id=ONE)
        stored = written(
            BOOK,
            book,
            normalized_title="a wizard of earthsea",
            isbn10="080442957X",
            isbn13="9780306406157",
            created_at=NOW_TEXT,
            updated_at=NOW_TEXT,
        )
        duration_map = {
            f"b:duration_map:{ONE}": {"segments": [], "total_duration": 0, "version": 1}
        }
        await holds(
            store,
            {
                f"b:{ONE}": stored,
                **duration_map,
                f"idx:book:author:{TWO}:{ONE}": 1,
                f"idx:book:series:{THREE}:0000001500:{ONE}": 1,
                f"idx:book:title:a wizard of earthsea:{ONE}": 1,
                f"idx:book:tag:fantasy:{ONE}": 1,
                f"idx:book:tag:mood%3A calm:{ONE}": 1,
                f"idx:book:genre:novel:{ONE}": 1,
                f"idx:book:isbn10:080442957X:{ONE}": 1,
                f"idx:book:isbn13:9780306406157:{ONE}": 1,
                f"idx:book:work:{FOUR}:{ONE}": 1,
            },
        )
        assert [entry.record.id async for entry in store.scan(BOOK)] == [ONE], (
            "the duration map is not a book"
        )

        clock.advance(seconds=60)
        changed = Book(id=ONE, title="The Tombs of Atuan", series_id=FIVE, tags=["Fantasy"])
        await store.put(BOOK, changed)
        changed = replace(
            changed,
            normalized_title="the tombs of atuan",
            created_at=NOW_TEXT,
            updated_at=LATER_TEXT,
        )
        await holds(
            store,
            {
                f"b:{ONE}": written(BOOK, changed),
                **duration_map,
                f"idx:book:series:{FIVE}:null:{ONE}": 1,
                f"idx:book:title:the tombs of atuan:{ONE}": 1,
                f"idx:book:tag:fantasy:{ONE}": 1,
            },
        )

        # Into the bin, out again, and gone.
        await store.put(BOOK, replace(changed, deleted_at=LATER_TEXT))
        binned = {f"b:{ONE}": written(BOOK, changed, deleted_at=LATER_TEXT), **duration_map}
        at = LATER_TEXT.replace(":", "%3A")
        index = {f"idx:bin:series:{FIVE}:{ONE}": 1, f"idx:bin:at:{at}:{ONE}": 1}
        await holds(store, binned | index)
        with pytest.raises(LinkError, match="still referred to"):
            await store.delete(SERIES, id=FIVE)
        await store.put(BOOK, changed)
        assert len(await rows(store)) == 5
        await holds(store, await rows(store))
        await store.delete(BOOK, id=ONE)
        await holds(store, {})

    drive(work)


def test_books_are_listed_by_each_of_their_indexes(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, AUTHOR, TWO)
        await stub(store, SERIES, THREE)
        positions: list[float | None] = [None, 10, 1.5, 2, 1]
        for number, position in enumerate(positions, 1):
            await store.put(
                BOOK,
                Book(
                    id=ulid(number),
                    title=f"Book {number}",
                    author_id=TWO,
                    series_id=THREE,
                    series_position=position,
                    tags=["a"] if number % 2 else [],
                    isbn13="9780306406157" if number == 1 else None,
                ),
            )

        async def listed(**by: Any) -> list[str]:
            return [entry.record.title[-1] async for entry in store.scan(BOOK, **by)]

        assert await listed() == ["1", "2", "3", "4", "5"]
        assert await listed(by=BOOKS_BY_SERIES, series_id=THREE) == ["5", "3", "4", "2", "1"]
        assert await listed(by=BOOKS_BY_SERIES, series_id=THREE, reverse=True) == [
            "1",
            "2",
            "4",
            "3",
            "5",
        ]
        assert await listed(by=BOOKS_BY_AUTHOR, author_id=TWO) == ["1", "2", "3", "4", "5"]
        assert await listed(by=BOOKS_BY_TAG, tag=" A ") == ["1", "3", "5"]
        assert await listed(by=BOOKS_BY_TITLE, prefix="BOOK  ") == ["1", "2", "3", "4", "5"]
        assert await listed(by=BOOKS_BY_TITLE, prefix="book 2") == ["2"]
        assert await listed(by=BOOKS_BY_ISBN13, isbn13="9780306406157") == ["1"]

    drive(work)


@pytest.mark.parametrize(
    ("field", "value"), [("isbn10", "0306406153"), ("isbn13", "9780306406158")]
)
def test_a_book_with_an_invalid_isbn_is_rejected(drive: Drive, field: str, value: str) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        with pytest.raises(RecordError, match="check digit"):
            await store.put(BOOK, replace(Book(id=ONE, title="x"), **{field: value}))
        await holds(store, {})

    drive(work)


def segment(identifier: str, number: int) -> Segment:
    return Segment(
        id=identifier,
        book_id=ONE,
        file_path=f"{number}.mp3",
        format="mp3",
        size_bytes=1,
        duration_seconds=60,
        hash_sha256="hex",
        track_number=number,
        total_tracks=2,
    )


def test_a_merged_segment_takes_the_position_of_the_old_ones(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, BOOK, ONE)
        old = [segment(TWO, 1), segment(THREE, 2)]
        for each in old:
            await store.put(SEGMENT, each)
        assert {
            key: value for key, value in (await rows(store)).items() if key.startswith("bfi:")
        } == {
            f"bfi:{ONE}:0000000001": TWO,
            f"bfi:{ONE}:0000000002": THREE,
        }
        with pytest.raises(UniqueError):
            await store.put(SEGMENT, segment(FOUR, 1))

        async with store.transaction() as tx:
            for each in old:
                await tx.put(SEGMENT, replace(each, active=False, superseded_by=FOUR))
            await tx.put(SEGMENT, segment(FOUR, 1))
        found = await rows(store)
        lookups = ("idx:segment:hash:", "idx:segment:path:")
        assert sorted(key for key in found if not key.startswith(lookups)) == [
            f"bf:{TWO}",
            f"bf:{THREE}",
            f"bf:{FOUR}",
            f"bfi:{ONE}:0000000001",
            *(f"idx:segment:book:{ONE}:{each}" for each in (TWO, THREE, FOUR)),
        ]
        assert (
            found[f"bfi:{ONE}:0000000001"] == FOUR and found[f"bf:{TWO}"]["superseded_by"] == FOUR
        )
        await holds(store, found)

        for identifier in (TWO, THREE, FOUR):
            await store.delete(SEGMENT, id=identifier)
        await holds(store, {})

    drive(work)


def test_two_segments_swap_positions(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, BOOK, ONE)
        first, second = segment(TWO, 1), segment(THREE, 2)
        await store.put(SEGMENT, first)
        await store.put(SEGMENT, second)
        async with store.transaction() as tx:
            await tx.put(SEGMENT, replace(first, active=False))  # leaves its place
            await tx.put(SEGMENT, replace(second, track_number=1))
            await tx.put(SEGMENT, replace(first, track_number=2))
        found = await rows(store)
        assert [found[f"bfi:{ONE}:000000000{place}"] for place in (1, 2)] == [THREE, TWO]
        await holds(store, found)

    drive(work)


def test_a_playlist_and_its_items_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, USER, TWO)
        await stub(store, BOOK, THREE, FOUR)
        await store.put(PLAYLIST, Playlist(id=ONE, name="To hear", user_id=TWO))
        await store.put(PLAYLIST, Playlist(id=FIVE, name="Everybody's"))
        for position, book in enumerate((THREE, FOUR), 1):
            await store.put(PLAYLIST_ITEM, book, playlist_id=ONE, position=position)
        stamped = {"created_at": NOW_TEXT, "updated_at": NOW_TEXT, "version": 1}
        await holds(
            store,
            {
                f"pl:{ONE}": {"id": ONE, "name": "To hear", "user_id": TWO, **stamped},
                f"pl:{FIVE}": {"id": FIVE, "name": "Everybody's", "user_id": None, **stamped},
                f"idx:playlist:user:{TWO}:{ONE}": 1,
                f"idx:playlist:shared:{FIVE}": 1,
                f"pli:{ONE}:0000000001": THREE,
                f"pli:{ONE}:0000000002": FOUR,
                f"idx:playlist:book:{THREE}:{ONE}:0000000001": 1,
                f"idx:playlist:book:{FOUR}:{ONE}:0000000002": 1,
            },
        )
        async with store.transaction() as tx:
            await tx.put(PLAYLIST_ITEM, FOUR, playlist_id=ONE, position=1)
            await tx.put(PLAYLIST_ITEM, THREE, playlist_id=ONE, position=2)
        assert [entry.record async for entry in store.scan(PLAYLIST_ITEM, playlist_id=ONE)] == [
            FOUR,
            THREE,
        ]
        await holds(store, await rows(store))
        await store.delete(BOOK, id=FOUR)
        items = [entry.values[1] async for entry in store.scan(PLAYLIST_ITEM, playlist_id=ONE)]
        assert items == [2], "a purged book leaves its places"
        await store.delete(USER, id=TWO)
        await store.delete(PLAYLIST, id=FIVE)
        await holds(store, {})

    drive(work)


def test_an_operation_and_its_log_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        operation = Operation(id=ONE, type="merge", created_by="system")
        await store.put(OPERATION, operation)
        for message in ("begin", "end"):
            line = OperationLine(timestamp=NOW_TEXT, level="info", message=message)
            await store.append(OPERATION_LOG, line, operation_id=ONE)
        line_1 = {"timestamp": NOW_TEXT, "level": "info", "version": 1}
        await holds(
            store,
            {
                f"op:{ONE}": written(OPERATION, operation),
                f"op:{ONE}:next_seq": 2,
                f"opl:{ONE}:0000000000": {"seq": 0, "message": "begin", **line_1},
                f"opl:{ONE}:0000000001": {"seq": 1, "message": "end", **line_1},
            },
        )
        assert [entry.record.id async for entry in store.scan(OPERATION)] == [ONE], (
            "the counter is not an operation"
        )
        assert await store.get(NEXT_SEQ, operation_id=ONE) == 2
        await store.put(OPERATION, replace(operation, status="failed", error="interrupted"))
        await store.delete(OPERATION, id=ONE)
        await holds(store, {})

    drive(work)


async def filled(store: Store) -> None:
    """Put a listened book with everything that belongs to it, and its user."""
    await stub(store, USER, TWO)
    await stub(store, AUTHOR, THREE)
    await store.put(WORK, Work(id=FOUR, title="Dune", author_id=THREE))
    await store.put(BOOK, Book(id=ONE, title="Dune", author_id=THREE, work_id=FOUR))
    await store.put(SEGMENT, segment(FIVE, 1))
    await store.put(SEGMENT, replace(segment(ulid(6), 1), active=False))
    await store.put(DURATION_MAP, DurationMap(), book_id=ONE)
    await store.put(PLAYLIST, Playlist(id=ulid(7), name="To hear", user_id=TWO))
    await store.put(PLAYLIST_ITEM, ONE, playlist_id=ulid(7), position=1)
    await store.put(PREFERENCE, "dark", user_id=TWO, key="theme")
    for at in (0, 60):
        event = PlaybackEvent(
            user_id=TWO,
            book_id=ONE,
            segment_id=FIVE,
            position_seconds=at,
            event_type="progress" if at else "start",
            created_at=f"2026-01-01T00:0{at // 60}:00Z",
        )
        await store.append(PLAYBACK, event)


def test_a_purged_book_leaves_nothing_but_what_others_own(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await filled(store)
        await store.delete(BOOK, id=ONE)
        left = {key.partition(":")[0] for key in await rows(store)}
        assert left == {"w", "idx", "pl", "pref", "stats"}
        assert [key for key in await rows(store) if ONE in key] == []
        await holds(store, await rows(store))

    drive(work)


def test_a_deleted_user_leaves_the_books_and_nothing_else(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await filled(store)
        await store.delete(USER, id=TWO)
        assert [key for key in await rows(store) if TWO in key or ulid(7) in key] == []
        assert await store.get(BOOK, id=ONE) is not None
        await holds(store, await rows(store))

    drive(work)


def test_an_author_or_work_with_books_is_not_deleted(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await filled(store)
        for record, id in ((AUTHOR, THREE), (WORK, FOUR)):
            with pytest.raises(LinkError, match="still referred to"):
                await store.delete(record, id=id)
        await store.delete(BOOK, id=ONE)
        await store.delete(WORK, id=FOUR)
        await store.delete(AUTHOR, id=THREE)
        assert not [key for key in await rows(store) if THREE in key or FOUR in key]

    drive(work)
