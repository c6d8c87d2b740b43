"""Stored rows over an API: pages are bounded by bytes, and never show secrets."""

import asyncio

import msgspec
import pytest

from keyhouse import Record, Schema, Space, Store, open_engine
from keyhouse.engine import Batch, Put
from keyhouse.operations.limits import SERVED_PAGE_BYTES_MAX
from keyhouse.service.row_reads import ROWS_MAX, RowsPage, RowsQuery, read_rows
from keyhouse.service.served_engine import ServedEngine
from tests.support.event_loop_turns import turns_during


class Note(msgspec.Struct):
    id: str
    text: str
    secret: str = ""


NOTE = Record(Note, "note:{id}", private=("secret",))
SCHEMA = Schema("notes", NOTE, space=Space("a user"))
LARGE = 60_000
COUNT = 150


async def opened() -> Store:
    store = Store(SCHEMA, ServedEngine(await open_engine("memory:")), "u")
    await store.put_many(NOTE, [Note(f"{n:03}", "x" * LARGE, "hidden") for n in range(COUNT)])
    return store


async def all_pages(store: Store, query: RowsQuery) -> list[RowsPage]:
    pages = [await read_rows(store, query)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(await read_rows(store, msgspec.structs.replace(query, after=cursor)))
    return pages


def test_a_page_of_large_rows_ends_by_its_bytes_and_continues() -> None:
    """500 rows of 380 KiB would be 190 MB, in one step of the event loop."""

    async def scenario() -> None:
        store = await opened()
        keys = [f"note:{n:03}" for n in range(COUNT)]
        for reverse in (False, True):
            pages = await all_pages(store, RowsQuery(prefix="note:", reverse=reverse))
            found = [row.key for page in pages for row in page.items]
            assert found == (keys[::-1] if reverse else keys)
            assert len(pages) == 3
            sizes = [len(msgspec.json.encode(page)) for page in pages]
            assert max(sizes) < SERVED_PAGE_BYTES_MAX + 2 * LARGE
        (small,) = await all_pages(store, RowsQuery(prefix="note:", keys_only=True))
        assert [row.key for row in small.items] == keys and len(keys) < ROWS_MAX

    asyncio.run(scenario())


def test_other_tasks_run_while_a_page_is_read() -> None:
    async def scenario() -> int:
        _, turns = await turns_during(read_rows(await opened(), RowsQuery()))
        return turns

    assert asyncio.run(scenario()) > 10


def test_the_limit_of_a_page_is_exact_and_the_last_one_has_no_cursor() -> None:
    async def scenario() -> None:
        store = await opened()
        pages = await all_pages(store, RowsQuery(prefix="note:14", limit=5))
        assert [len(page.items) for page in pages] == [5, 5]
        assert (await read_rows(store, RowsQuery(prefix="other:"))) == RowsPage([])

    asyncio.run(scenario())


def test_private_members_and_what_is_not_json_are_left_out() -> None:
    async def scenario() -> None:
        store = await opened()
        rows = (
            Put("note:a", b'{"id":1,"secret":"s"}'),
            Put("odd", b"\xff"),
            Put("plain", b'{"a":1}'),
        )
        await store.engine.commit("u", Batch(puts=rows))
        page = await read_rows(store, RowsQuery(prefix="note:000"))
        assert b"hidden" not in msgspec.json.encode(page)
        shown = msgspec.json.decode(
            msgspec.json.encode(await read_rows(store, RowsQuery("note:a")))
        )
        assert shown["items"] == [{"key": "note:a", "revision": shown["items"][0]["revision"]}]
        odd, plain = (await read_rows(store, RowsQuery(after="note:zzz"))).items
        assert odd.value is None and bytes(plain.value) == b'{"a":1}'

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [b'"\xff"', b'{"a":"\xc3("}', b"[" * 99_999 + b"]" * 99_999])
def test_a_row_of_another_program_that_cannot_be_parsed_does_not_fail_the_page(
    value: bytes,
) -> None:
    """A page with such a row was a status 500, and so none of the other rows could be read."""

    async def scenario() -> None:
        store = await opened()
        rows = (Put("odd", value), Put("plain", b"1"))
        await store.engine.commit("u", Batch(puts=rows))
        odd, plain = (await read_rows(store, RowsQuery(after="note:zzz"))).items
        assert odd.value is None and bytes(plain.value) == b"1"

    asyncio.run(scenario())
