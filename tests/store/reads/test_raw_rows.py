"""Raw rows, several records in one read, revisions and usage: the reads that need no record."""

from contextlib import aclosing
from typing import Any
from unittest import mock

import pytest

from keyhouse.engine import Row, Span
from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.store import Store, UsagePage
from keyhouse.store.reads import usage
from tests.store.support.harness import Harness, all_of, book, everywhere, soon
from tests.store.support.library_schema import BOOK, BY_TITLE, HITS, MAP


async def _filled(harness: Harness, count: int = 5) -> Store:
    store = harness.store()
    for number in range(count):
        await store.put(MAP, {"n": number}, id=f"m{number}")
    return store


@everywhere
async def test_get_many_returns_records_in_order_by_one_read(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    first = await store.put(BOOK, book("1"))
    second = await store.put(BOOK, book("2"))
    reads = engine.calls["read"]
    found = await store.get_many(BOOK, [{"id": "2"}, {"id": "x"}, {"id": "1"}, {"id": "2"}])
    assert found == [second.record, None, first.record, second.record]
    assert engine.calls["read"] == reads + 1
    assert await store.get_many(BOOK, []) == []
    assert engine.calls["read"] == reads + 1


@everywhere
async def test_get_many_of_a_counter_counts_an_absent_one_as_zero(harness: Harness) -> None:
    store = harness.store()
    await store.add(HITS, 3, page="p")
    assert await store.get_many(HITS, [{"page": "q"}, {"page": "p"}]) == [0, 3]


@everywhere
async def test_get_many_rejects_an_address_that_is_not_a_key(harness: Harness) -> None:
    store = harness.store()
    for address in ({}, {"id": "A"}):
        with pytest.raises(KeyFieldError):
            await store.get_many(BOOK, [address])
    with pytest.raises(UsageError):
        await store.get_many(BOOK, [{"id": "1", "page": "p"}])


@everywhere
async def test_rows_returns_stored_rows_whatever_they_hold(harness: Harness) -> None:
    store = await _filled(harness, 1)
    await harness.plant({"b:1": b"not a book"})
    planted, absent, written = await store.rows(["b:1", "b:2", "b:map:m0"])
    assert (
        planted is not None and planted.value == b"not a book" and planted == await store.row("b:1")
    )
    assert absent is None
    assert written is not None and written.value == b'{"n":0}'
    assert await store.rows([]) == []
    for key in ("", "\0", 5):
        with pytest.raises(KeyFieldError):
            await store.rows(["b:1", key])  # type: ignore[list-item]


@everywhere
async def test_row_page_returns_a_page_with_its_revision(harness: Harness) -> None:
    store = await _filled(harness)
    span = store.span(MAP)
    page = await store.row_page(span, limit=2)
    assert [row.key for row in page.rows] == ["b:map:m0", "b:map:m1"] and page.more
    assert page.revision == await store.revision()
    rest = await store.row_page(span.after("b:map:m1"), limit=9)
    assert [row.key for row in rest.rows] == ["b:map:m2", "b:map:m3", "b:map:m4"] and not rest.more
    back = await store.row_page(span, limit=2, reverse=True, keys_only=True)
    assert [(row.key, row.value) for row in back.rows] == [("b:map:m4", b""), ("b:map:m3", b"")]
    for limit in (0, -1, 10_001, True, "2"):
        with pytest.raises(UsageError):
            await store.row_page(limit=limit)  # type: ignore[arg-type]


@everywhere
async def test_row_scan_goes_over_all_pages_in_both_directions(harness: Harness) -> None:
    store = harness.store()
    rows: dict[str, bytes | None] = {f"x{number:04d}": b"1" for number in range(1_100)}
    await harness.plant(rows)
    forward: list[Row] = await all_of(store.row_scan(Span.prefix("x")))
    backward: list[Row] = await all_of(store.row_scan(reverse=True, keys_only=True))
    assert [row.key for row in forward] == sorted(rows)
    assert [row.key for row in backward] == sorted(rows, reverse=True)


@everywhere
async def test_a_span_begins_with_the_fields_given(harness: Harness) -> None:
    store = harness.store()
    assert store.span(MAP) == Span.prefix("b:map:")
    assert store.span(BOOK, id="1") == Span.only("b:1")
    assert store.span(BY_TITLE, title="dune") == Span.prefix("idx:title:dune:")


@everywhere
async def test_row_watch_shows_every_change_after_a_revision(harness: Harness) -> None:
    store = await _filled(harness, 1)
    since = await store.revision()
    await harness.plant({"b:1": b"not a book", "z": b"1"})
    async with aclosing(store.row_watch(Span.prefix("b:"), since=since)) as changes:
        change = await soon(anext(changes))
    assert (change.key, change.value) == ("b:1", b"not a book")


async def _usage(store: Store, *declared: Any, page_rows: int = 250) -> list[UsagePage]:
    with mock.patch.object(usage, "USAGE_PAGE_ROWS", page_rows):
        return await all_of(store.usage(*declared))


@everywhere
async def test_usage_counts_keys_and_bytes_of_the_whole_space(harness: Harness) -> None:
    store = await _filled(harness)
    await harness.plant({"ü": b"12"})
    pages = await _usage(store, page_rows=2)
    assert [(page.keys, page.through) for page in pages] == [
        (2, "b:map:m1"),
        (2, "b:map:m3"),
        (2, None),
    ]
    assert sum(page.bytes for page in pages) == 5 * len(b'b:map:m0{"n":0}') + 4
    assert {page.revision for page in pages} == {await store.revision()}
    assert await _usage(harness.store(space="empty")) == [
        UsagePage(0, 0, None, (await harness.store(space="empty").row_page()).revision)
    ]


@everywhere
async def test_usage_of_declarations_counts_their_rows_and_no_others(harness: Harness) -> None:
    store = await _filled(harness)
    await harness.plant({"b:map:": b"1", "a": b"1", "z": b"1"})
    await store.add(HITS, 3, page="p")
    pages = await _usage(store, MAP, HITS, page_rows=4)
    assert sum(page.keys for page in pages) == 6
    through = [page.through for page in pages]
    assert through[-1] is None and through[:-1] == sorted(filter(None, through))
    assert sum(page.keys for page in await _usage(store, MAP)) == 5


@everywhere
async def test_a_usage_page_tells_whether_it_includes_a_write(harness: Harness) -> None:
    store = await _filled(harness)
    with mock.patch.object(usage, "USAGE_PAGE_ROWS", 2):
        pages = store.usage()
        first = await anext(pages)
        written = await store.put(MAP, {"n": 9}, id="m4")
        rest = [page async for page in pages]
    assert first.revision < written.revision <= rest[-1].revision
