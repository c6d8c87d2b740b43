"""Scans: in order, in both directions, page by page, and never a row of another shape, space or
scan."""

import base64
from typing import Any

import msgspec
import pytest

from keyhouse.errors import CursorError, UnreadableError, UsageError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import Store
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import Harness, all_of, book, everywhere, session
from tests.store.support.library_schema import (
    BOOK,
    BY_SERIES,
    BY_TAG,
    BY_TITLE,
    IN_YEAR,
    MAP,
    ON_SHELF,
    SLIDING,
    SLIDING_BY_USER,
    VIEWING,
    Viewing,
)


async def ids(store: Store, **options: Any) -> list[str]:
    return [entry.record.id async for entry in store.scan(BOOK, **options)]


async def paged(store: Store, limit: int, **options: Any) -> list[list[str]]:
    """The ids of each page, from the first to the last."""
    pages, cursor = [], None
    while True:
        page = await store.page(BOOK, limit=limit, cursor=cursor, **options)
        pages.append([entry.record.id for entry in page.entries])
        if (cursor := page.cursor) is None:
            return pages


async def filled(harness: Harness) -> Store:
    store = harness.store()
    for number in range(1, 8):
        position = None if number == 7 else (8 - number) / 2
        await store.put(
            BOOK,
            book(
                str(number),
                series="s" if number != 4 else "ss",
                position=position,
                tags=["x", f"t{number}"],
            ),
        )
    return store


@everywhere
async def test_records_come_in_the_order_of_their_keys_or_in_reverse(harness: Harness) -> None:
    store = await filled(harness)
    assert await ids(store) == ["1", "2", "3", "4", "5", "6", "7"]
    assert await ids(store, reverse=True) == ["7", "6", "5", "4", "3", "2", "1"]


@everywhere
async def test_records_come_in_the_order_of_an_index_with_the_unset_last(harness: Harness) -> None:
    store = await filled(harness)
    assert await ids(store, by=BY_SERIES, series="s") == ["6", "5", "3", "2", "1", "7"]
    assert await ids(store, by=BY_SERIES, series="s", reverse=True) == [
        "7",
        "1",
        "2",
        "3",
        "5",
        "6",
    ]
    assert await ids(store, by=BY_SERIES, series="ss") == ["4"]
    assert await ids(store, by=BY_SERIES, series="s", position=3.5) == ["1"]
    assert await ids(store, by=BY_SERIES, series="s", position=None) == ["7"]
    assert await ids(store, by=BY_TAG, tag="X") == ["1", "2", "3", "4", "5", "6", "7"]
    assert await ids(store, by=BY_TITLE, title="title 3") == ["3"]
    assert await ids(store, by=BY_TITLE, prefix="TITLE ") == ["1", "2", "3", "4", "5", "6", "7"]
    assert await ids(store, by=BY_SERIES, prefix="s") == ["6", "5", "3", "2", "1", "7", "4"]
    assert await ids(store, by=BY_SERIES, prefix="z") == []


@everywhere
async def test_a_page_starts_exactly_where_the_last_one_ended(harness: Harness) -> None:
    store = await filled(harness)
    assert await paged(store, 3) == [["1", "2", "3"], ["4", "5", "6"], ["7"]]
    assert await paged(store, 7) == [["1", "2", "3", "4", "5", "6", "7"]]
    assert await paged(store, 3, reverse=True) == [["7", "6", "5"], ["4", "3", "2"], ["1"]]
    assert await paged(store, 4, by=BY_SERIES, series="s") == [["6", "5", "3", "2"], ["1", "7"]]
    assert await paged(store, 2, by=BY_SERIES, series="none") == [[]]


@everywhere
async def test_a_cursor_is_good_after_the_row_it_names_is_gone(harness: Harness) -> None:
    store = await filled(harness)
    page = await store.page(BOOK, limit=3)
    await store.delete(BOOK, id="3")
    await store.put(BOOK, book("35"))
    following = await store.page(BOOK, limit=2, cursor=page.cursor)
    assert [entry.record.id for entry in following.entries] == ["35", "4"]


def forged(*content: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


@everywhere
async def test_a_forged_or_foreign_cursor_is_rejected(harness: Harness) -> None:
    store = await filled(harness)
    page = await store.page(BOOK, limit=3)
    assert page.cursor is not None
    bad: list[Any] = [
        "",
        "x",
        "é",
        "\ud800",
        "AAAA",
        "=",
        forged(),
        forged(1),
        forged(1, 2),
        forged("1", "k"),
        forged(0, "b:1"),
    ]
    bad += [page.cursor + "!", page.cursor[:-2], 5, b"AAAA"]
    for cursor in bad:
        with pytest.raises(CursorError):
            await store.page(BOOK, limit=3, cursor=cursor)
    for call in (
        store.page(BOOK, cursor=page.cursor, reverse=True),
        store.page(BOOK, cursor=page.cursor, by=BY_TAG, tag="x"),
        store.page(MAP, cursor=page.cursor),
        harness.store(space="other").page(BOOK, cursor=page.cursor),
    ):
        with pytest.raises(CursorError):
            await call


@everywhere
async def test_a_cursor_cannot_leave_the_span_of_its_scan(harness: Harness) -> None:
    """A forged cursor with the right mark and a key outside the span finds nothing else."""
    store = await filled(harness)
    page = await store.page(BOOK, by=BY_TAG, tag="x", limit=2)
    assert page.cursor is not None
    mark, _ = msgspec.json.decode(
        base64.urlsafe_b64decode(page.cursor + "=" * (-len(page.cursor) % 4))
    )
    for key, expected in (
        ("", 7),
        ("\0", 7),
        ("a", 7),
        ("idx:tag:x:4", 3),
        ("zzz", 0),
        ("idx:tag:", 7),
    ):
        following = await store.page(BOOK, by=BY_TAG, tag="x", cursor=forged(mark, key))
        assert len(following.entries) == expected
    with pytest.raises(CursorError):
        await store.page(
            BOOK,
            by=BY_TAG,
            tag="x",
            cursor=base64.urlsafe_b64encode(b'[%d,"\\ud800"]' % mark).decode(),
        )


@everywhere
async def test_a_page_has_a_size(harness: Harness) -> None:
    store = await filled(harness)
    bad: list[Any] = [0, -1, PAGE_ROWS_MAX + 1, True, 1.0, "5", None]
    for limit in bad:
        with pytest.raises(UsageError):
            await store.page(BOOK, limit=limit)
    assert len((await store.page(BOOK, limit=PAGE_ROWS_MAX)).entries) == 7


@everywhere
async def test_keys_and_counts_need_no_values(harness: Harness) -> None:
    store = await filled(harness)
    keys, cursor = await store.keys(BY_SERIES, limit=2, series="s")
    assert keys == ["idx:series:s:00001000:6", "idx:series:s:00001500:5"]
    keys, cursor = await store.keys(BY_SERIES, limit=10, series="s", cursor=cursor)
    assert len(keys) == 4 and cursor is None
    assert (await store.keys(BOOK, reverse=True, limit=1))[0] == ["b:7"]
    assert (await store.keys(ON_SHELF))[0] == [] and (await store.keys(IN_YEAR))[0] == ["year:0000"]
    assert (
        await store.count(BOOK) == 7
        and await store.count(BY_TAG, tag="x") == 7
        and await store.count(BY_TAG) == 14
    )
    assert await store.count(BY_TAG, prefix="t") == 7 and await store.count(MAP) == 0


@everywhere
async def test_rows_known_to_lie_among_others_are_left_out_of_their_scans(harness: Harness) -> None:
    """`b:map:…` lies among the books at `b:…`: pages are full, and their cursor is exact, all the
    same."""
    store = harness.store()
    for id in ("a", "l", "n", "z"):
        await store.put(BOOK, book(id))
    for number in range(40):
        await store.put(MAP, number, id=f"{number:02d}")
    assert await ids(store) == ["a", "l", "n", "z"]
    assert await ids(store, reverse=True) == ["z", "n", "l", "a"]
    for limit in (1, 2, 3, 4, 5):
        assert [id for page in await paged(store, limit) for id in page] == ["a", "l", "n", "z"]
        assert all(len(page) == limit for page in (await paged(store, limit))[:-1])
    assert (await store.page(BOOK, limit=4)).cursor is None, "nothing of its shape is left"
    assert (await store.page(BOOK, limit=2, reverse=True)).cursor is not None
    assert await store.count(BOOK) == 4 and await store.count(MAP) == 40
    assert (await store.keys(BOOK, limit=3))[0] == ["b:a", "b:l", "b:n"]


@everywhere
async def test_words_at_the_head_of_a_key_are_scanned_apart(harness: Harness) -> None:
    store = harness.store()
    for state, asset in (("open", "1"), ("done", "2"), ("open", "3")):
        await store.put(VIEWING, Viewing(state=state, asset=asset))
    assert [entry.record.asset async for entry in store.scan(VIEWING, state="open")] == ["1", "3"]
    assert [entry.record.asset async for entry in store.scan(VIEWING)] == ["2", "1", "3"]


@everywhere
async def test_expired_records_are_in_no_scan_page_or_count(harness: Harness) -> None:
    store = harness.store()
    for id in ("1", "2", "3"):
        await store.put(SLIDING, session(id), ttl=10 if id == "2" else None)
    harness.clock.advance(seconds=10)
    assert [entry.record.id async for entry in store.scan(SLIDING)] == ["1", "3"]
    assert [
        entry.record.id
        async for entry in store.scan(SLIDING, by=SLIDING_BY_USER, user="ann", reverse=True)
    ] == [
        "3",
        "1",
    ]
    assert await store.count(SLIDING) == 2 and await store.count(SLIDING_BY_USER) == 2
    assert len((await store.page(SLIDING, limit=1)).entries) == 1


@everywhere
async def test_a_record_that_leaves_an_index_while_it_is_read_is_left_out(harness: Harness) -> None:
    store = await filled(harness)

    async def leave() -> None:
        await store.put(BOOK, book("2", tags=["t2"]))
        await store.delete(BOOK, id="5")
        await store.put(BOOK, book("3", tags=["x"], title="changed"))

    racing = harness.store(
        engine=FaultyEngine(harness.engine, meanwhile(1, leave, call="scan", after=True))
    )
    page = await racing.page(BOOK, by=BY_TAG, tag="x")
    assert [entry.record.id for entry in page.entries] == ["1", "3", "4", "6", "7"]
    assert page.entries[1].record.title == "changed"


@everywhere
async def test_a_page_says_at_which_revision_it_was(harness: Harness) -> None:
    store = await filled(harness)
    page = await store.page(BOOK)
    assert page.revision >= max(entry.revision for entry in page.entries)
    await store.put(BOOK, book("9"))
    assert (await store.page(BOOK)).revision > page.revision


@everywhere
async def test_a_long_scan_is_read_in_pages(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    async with store.transaction() as tx:
        for number in range(1_100):
            await tx.put(MAP, number, id=f"{number:04d}")
    assert [entry.record async for entry in store.scan(MAP)] == list(range(1_100))
    assert engine.calls["scan"] == 6  # 16 rows, 64, then 256 each


@everywhere
async def test_a_foreign_row_within_an_index_is_named(harness: Harness) -> None:
    store = harness.store()
    await harness.plant({"idx:series:s:what": b"1"})
    with pytest.raises(UnreadableError):
        await all_of(store.scan(BOOK, by=BY_SERIES, series="s"))
    await harness.plant({"idx:series:s:what": None, "idx:title:x:1": b"5"})
    assert await all_of(store.scan(BOOK, by=BY_TITLE)) == [], (
        "a row that leads to no record is not a record"
    )


@everywhere
async def test_a_scan_is_bound_by_its_own_fields(harness: Harness) -> None:
    store = harness.store()
    for fields in (
        {"nope": 1},
        {"position": 1},
        {"series": "s", "position": 1, "id": "1", "more": 2},
    ):
        with pytest.raises(UsageError):
            await store.page(BOOK, by=BY_SERIES, **fields)
    with pytest.raises(UsageError):
        await store.page(BOOK, prefix="1")


@everywhere
async def test_literal_prefixes_mean_what_they_say(harness: Harness) -> None:
    """Keys of any text: `%`, `_`, `*` and `.` are characters, at the edge of Unicode too."""
    plain: Record[Any] = Record(Any, "{key}", name="value")
    store = Store(Schema("plain", plain, space=Space("x")), harness.engine, "plain")
    keys = [
        "a%b",
        "a_b",
        "a*b",
        "a.b",
        "ab",
        "a",
        "A",
        "a\ud7ff",
        "a\ud7ffx",
        "a\ue000",
        "a\U0010ffff",
        "a\U0010ffffz",
        "b",
    ]
    for key in keys:
        await store.put(plain, key, key=key)
    for prefix in ("a%", "a_", "a*", "a.", "a", "a\ud7ff", "a\U0010ffff", "", "\U0010ffff"):
        found = [entry.record async for entry in store.scan(plain, prefix=prefix)]
        assert found == sorted(key for key in keys if key.startswith(prefix))


@everywhere
async def test_a_range_lists_the_records_between_two_positions(harness: Harness) -> None:
    store = await filled(harness)
    found = await ids(store, by=BY_SERIES, series="s", between=(1, 3))
    assert found == ["6", "5", "3"]  # positions 1, 1.5 and 2.5; 3 is excluded, 7 has none
    assert await ids(store, by=BY_SERIES, series="s", between=(3, None), reverse=True) == ["1", "2"]
    assert await store.count(BY_SERIES, series="s", between=(None, 3)) == 3


@everywhere
async def test_a_range_of_text_is_by_its_value_and_pages_by_cursor(harness: Harness) -> None:
    store = await filled(harness)
    tags: dict[str, Any] = {"by": BY_TAG, "between": ("T3", "t6")}
    assert await ids(store, **tags) == ["3", "4", "5"]
    assert await paged(store, 2, **tags) == [["3", "4"], ["5"]]
    page = await store.page(BOOK, limit=1, **tags)
    with pytest.raises(CursorError, match="another scan"):
        await store.page(BOOK, limit=1, cursor=page.cursor, by=BY_TAG, between=("t3", "t7"))


@everywhere
async def test_a_scan_ends_after_its_limit(harness: Harness) -> None:
    store = await filled(harness)
    assert await ids(store, limit=3) == ["1", "2", "3"]
    assert await ids(store, limit=3, reverse=True) == ["7", "6", "5"]
    assert await ids(store, limit=100) == ["1", "2", "3", "4", "5", "6", "7"]
    for limit in (0, -1, True, 1.5):
        with pytest.raises(UsageError, match="limit of a scan"):
            await ids(store, limit=limit)
