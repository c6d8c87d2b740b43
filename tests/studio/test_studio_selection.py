"""Selected records: exported, counted, deleted as a job, and put back by its undo."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from keyhouse import Store
from keyhouse.store import verify
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import BOOK, SHELF, Book, Library, Shelf, fill, library, send

MAIN = "/studio/library/main"


def run(data: Path, scenario: Callable[[Library], Awaitable[None]], books: int = 10) -> None:
    async def main() -> None:
        async with library(data) as served:
            await fill(served.store, books)
            async with running_jobs(served):
                await scenario(served)

    asyncio.run(main())


async def keys(store: Store) -> list[str]:
    return [row.key async for row in store.row_scan()]


async def exported(client: httpx.AsyncClient, **selection: Any) -> list[str]:
    answer = await client.get(f"{MAIN}/export", params=selection)
    assert answer.status_code == 200, answer.text
    return [msgspec.json.decode(line)["key"] for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"k": ["book:b003", "book:b001"], "record": "book"}, ["book:b003", "book:b001"]),
        ({"k": ["book:b003", "shelf:hall"]}, ["book:b003", "shelf:hall"]),
        ({"record": "book", "q": "author=lem"}, [f"book:b00{n}" for n in (0, 2, 4, 6, 8)]),
        ({"record": "book", "q": "id:b00* "}, [f"book:b00{n}" for n in range(10)]),
        ({"prefix": "shelf:"}, ["shelf:hall"]),
        ({"prefix": "by-author:"}, []),
    ],
)
def test_what_is_exported_is_what_a_deletion_counts(
    selection: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            assert await exported(client, **selection) == expected
            page = (await client.get(f"{MAIN}/bulk.json", params=selection)).json()
            assert page["counted"]["count"] == len(expected)
            assert page["counted"]["sample"] == expected

    run(tmp_path, scenario)


def test_a_selection_of_no_record_is_rejected(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            for selection, sentence in (
                ({"k": "by-author:lem:b000"}, "not that of a record"),
                ({"k": "nothing"}, "not that of a record"),
                ({"record": "book", "q": "pages=1"}, "No key begins with these fields"),
                ({"record": "paper"}, "no such record"),
            ):
                answer = await client.get(f"{MAIN}/bulk.json", params=selection)
                assert answer.status_code in (400, 404), answer.text
                assert sentence in answer.text
            assert (await client.get(f"{MAIN}/export")).status_code == 400

    run(tmp_path, scenario)


def test_a_deletion_of_no_record_starts_no_job(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            for selection in ({}, {"prefix": "nothing:"}, {"record": "book", "q": "author=x"}):
                form = {"count": "0"}
                answer = await client.post(f"{MAIN}/bulk", params=selection, data=form)
                assert answer.status_code == 400, answer.text
                assert "No record is selected" in answer.text
            assert (await client.get("/studio/jobs.json")).json()["jobs"] == []

    run(tmp_path, scenario)


def test_a_record_that_is_selected_twice_counts_once(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            selection = {"k": ["book:b000", "book:b001", "book:b000"]}
            page = (await client.get(f"{MAIN}/bulk.json", params=selection)).json()
            assert (page["text"], page["counted"]["count"]) == ("2 selected", 2)
            lines = (await client.get(f"{MAIN}/export", params=selection)).text
            assert lines.count("book:b000") == 1
            form = {"count": "2"}
            done = await ended(
                client, await client.post(f"{MAIN}/bulk", params=selection, data=form)
            )
            assert done["job"]["current"] == 2

    run(tmp_path, scenario)


def test_records_of_a_filter_are_deleted_and_the_job_is_undone(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        store = served.store
        await store.put(BOOK, Book("b000", "Short", "lem", lender="friend"), ttl=3_600)
        before = {row.key: (row.value, row.expires) async for row in store.row_scan()}
        async with served.signed_in(unlocked=True) as client:
            form = {"record": "book", "q": "author=lem", "count": "5"}
            page = await ended(client, await send(client, f"{MAIN}/bulk", form))
            assert page["job"]["status"] == "completed", page
            assert page["can_undo"]
            assert await store.count(BOOK) == 5
            assert not [key for key in await keys(store) if ":lem:" in key]
            journal = (await client.get("/studio/journal.json")).json()["lines"]
            assert "friend" not in str(journal), "private members are masked"
            assert len([line for line in journal if line["action"] == "delete"]) == 5
            await store.put(BOOK, Book("b002", "Another", "le-guin"))
            undo = await send(client, "/studio/job", {"id": page["job"]["id"], "action": "undo"})
            done = await ended(client, undo)
            assert "4 records put back, 1 not" in str(done["lines"])
            assert "book:b002" in str(done["lines"])
            assert (await store.get(BOOK, id="b002")).title == "Another"  # type: ignore[union-attr]
            after = {row.key: row async for row in store.row_scan()}
            for number in (0, 4, 6, 8):
                value, expires = before[f"book:b00{number}"]
                row = after[f"book:b00{number}"]
                assert row.value == value
                assert abs((row.expires or 0) - (expires or 0)) < 2_000
            assert [each async for each in verify(store)] == []

    run(tmp_path, scenario)


def test_more_records_than_the_journal_keeps_are_deleted_in_groups(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            whole = {"record": "book", "all": "true"}
            page = (await client.get(f"{MAIN}/bulk.json", params=whole)).json()
            assert page["counted"] == page["counted"] | {"count": 1_001, "is_exact": True}
            assert not page["can_undo"]
            form = {"record": "book", "count": "1,001"}
            done = await ended(client, await send(client, f"{MAIN}/bulk", form))
            assert "1,001 records deleted" in str(done["lines"])
            assert not done["can_undo"]
            assert await served.store.count(BOOK) == 0
            assert await served.store.count(SHELF) == 1
            undo = await send(client, "/studio/job", {"id": done["job"]["id"], "action": "undo"})
            assert undo.status_code == 404

    run(tmp_path, scenario, books=1_001)


def test_a_count_that_takes_too_long_is_a_lower_bound_and_cannot_be_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyhouse.studio.bulk.COUNT_SECONDS", -1.0)

    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            page = await client.get(f"{MAIN}/bulk", params={"prefix": "book:"})
            assert "At least" in page.text
            assert "Count all records" in " ".join(page.text.split())
            assert "Type the number" not in page.text
            whole = await client.get(f"{MAIN}/bulk", params={"prefix": "book:", "all": "true"})
            assert "<strong>600 records</strong>" in whole.text
            assert "Type the number" in whole.text

    run(tmp_path, scenario, books=600)


def test_a_record_written_meanwhile_is_deleted_as_it_then_is(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        store = served.store
        async with served.signed_in(unlocked=True) as client:
            form = {"k": "shelf:hall", "count": "1"}
            await store.put(SHELF, Shelf("hall", 9))
            done = await ended(client, await send(client, f"{MAIN}/bulk", form))
            assert done["job"]["current"] == 1
            line = next(
                each
                for each in (await client.get("/studio/journal.json")).json()["lines"]
                if each["action"] == "delete"
            )
            assert '"height": 9' in line["before"]

    run(tmp_path, scenario)


def test_a_space_with_a_name_that_is_not_ascii_is_exported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with library(tmp_path) as served:
            await fill(Store(served.store.schema, served.engine, "日本"))
            async with served.signed_in() as client:
                answer = await client.get("/studio/library/日本/export", params={"prefix": "book:"})
                assert answer.status_code == 200
                assert 'filename="__.jsonl"' in answer.headers["content-disposition"]

    asyncio.run(scenario())


def test_an_export_of_a_key_that_is_not_a_record_is_rejected_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            for key in ("by-author:lem:b000", "nothing", "shelves:003"):
                selection = {"k": ["book:b000", key]}
                answer = await client.get(f"{MAIN}/export", params=selection)
                assert answer.status_code == 400
                assert answer.json()["detail"] == "The key is not that of a record."

    run(tmp_path, scenario)


def test_a_form_without_selected_records_selects_none_and_not_all(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            table = (await client.get(f"{MAIN}/book")).text
            assert (
                '<form id="selection" method="get" action="/studio/library/main/export"></form>'
                in table
            )
            answer = await client.get(f"{MAIN}/export")
            assert answer.status_code == 400
            assert "Select records" in answer.json()["detail"]
            page = (await client.get(f"{MAIN}/bulk.json")).json()
            assert page["counted"]["count"] == 0

    run(tmp_path, scenario)
