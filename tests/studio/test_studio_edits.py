"""Edits through the Studio: preview, save, conflict, undo."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse import open_engine
from keyhouse.engine import Batch, Put
from keyhouse.errors import UnavailableError, UnknownOutcomeError
from keyhouse.testing.faults import Fault, FaultyEngine, meanwhile
from tests.studio.support.library import BOOK, Book, Library, fill, library, run, send

MAIN = "/studio/library/main"


async def edit(
    client: httpx.AsyncClient, action: str, *, form: dict[str, str] | None = None, **changes: Any
) -> httpx.Response:
    page = (await client.get(f"{MAIN}/edit.json", params={"k": "book:b000"})).json()
    values = {field["name"]: field["value"] for field in page["fields"]} | changes
    sent = {
        "k": "book:b000",
        "revision": page["revision"],
        "mode": "form",
        "action": action,
        "member": [field["name"] for field in page["fields"]],
        "kind": [field["kind"] for field in page["fields"]],
        "value": [values[field["name"]] for field in page["fields"]],
    }
    return await send(client, f"{MAIN}/edit", sent | (form or {}))


def test_a_preview_writes_nothing_and_equals_what_a_save_commits(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        store = served.store
        before = await store.revision()
        async with served.signed_in(unlocked=True) as client:
            page = await edit(client, "preview", author="asimov")
            assert page.status_code == 200
            assert await store.revision() == before
            saved = await edit(client, "save", author="asimov")
            assert saved.status_code == 303, saved.text
        changed: set[str] = set()
        async with asyncio.timeout(30):
            async for change in store.row_watch(since=before):
                changed.add(f"{'delete' if change.value is None else 'put'} {change.key}")
                if len(changed) == 3:
                    break
        assert changed == {
            "put book:b000",
            "put by-author:asimov:b000",
            "delete by-author:lem:b000",
        }
        for line in changed:
            assert f">{line}</h3>" in page.text

    run(tmp_path, scenario)


def test_a_save_keeps_private_members_and_numbers(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            assert (await edit(client, "save", pages="321")).status_code == 303
        book = await served.store.get(BOOK, id="b000")
        assert book is not None
        assert (book.pages, book.lender, book.price) == (321, "secret friend", 1.10)

    run(tmp_path, scenario)


def test_a_save_keeps_the_time_that_a_record_has_left(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        await served.store.put(BOOK, Book("b000", "Title 0", "lem"), ttl=3_600)
        before = await served.store.entry(BOOK, id="b000")
        async with served.signed_in(unlocked=True) as client:
            preview = " ".join((await edit(client, "preview")).text.split())
            assert "1 row is put with the value that it has" in preview
            assert (await edit(client, "save", pages="1")).status_code == 303
        entry = await served.store.entry(BOOK, id="b000")
        assert entry is not None
        assert before is not None
        assert entry.expires == before.expires, "to the millisecond: derived rows stay as they are"

    run(tmp_path, scenario)


def test_a_record_is_given_another_time_to_live_or_none(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async def expiry() -> int | None:
            entry = await served.store.entry(BOOK, id="b000")
            assert entry is not None
            return entry.expires

        await served.store.put(BOOK, Book("b000", "Title 0", "lem"), ttl=3_600)
        async with served.signed_in(unlocked=True) as client:
            page = await edit(client, "preview", form={"ttl": "60"})
            preview = " ".join(page.text.split())
            assert "3 rows are put with the value that they have" in preview
            assert (await edit(client, "save", form={"ttl": "60"})).status_code == 303
            now = served.store.engine.clock.now()
            assert 0 < (await expiry() or 0) - now <= 60_000
            both = await edit(client, "save", form={"ttl": "60", "never_expires": "true"})
            assert both.status_code == 400
            assert "not both" in both.text
            assert (await edit(client, "save", form={"never_expires": "true"})).status_code == 303
            assert await expiry() is None

    run(tmp_path, scenario)


def test_an_edit_of_an_older_revision_shows_both_sides(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            page = (await client.get(f"{MAIN}/edit.json", params={"k": "book:b000"})).json()
            await served.store.put(BOOK, Book("b000", "Theirs", "lem"))
            text = '{"id": "b000", "title": "Mine", "author": "lem"}'
            form = {"k": "book:b000", "revision": page["revision"], "text": text}
            answer = await send(client, f"{MAIN}/edit", form | {"action": "save"})
            assert answer.status_code == 409 or answer.status_code == 412
            assert "Theirs" in answer.text
            assert "Mine" in answer.text
            assert (
                "lender" not in answer.text.split('aria-label="Conflict"')[1].split("</section>")[0]
            )
            book = await served.store.get(BOOK, id="b000")
            assert book is not None
            assert book.title == "Theirs"
            lines = (await client.get("/studio/journal.json")).json()["lines"]
            assert "save" not in [line["action"] for line in lines]

    run(tmp_path, scenario)


def test_text_that_is_not_json_names_the_line(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            form = {"k": "book:b000", "revision": "1", "action": "preview"}
            text = '{\n  "id": "b000",\n  "title": oops\n}'
            answer = await send(client, f"{MAIN}/edit", form | {"text": text})
            assert answer.status_code == 400 or answer.status_code == 422
            assert "Line 3, column" in answer.text
            text = '{\n  "id": "b000"'
            answer = await send(client, f"{MAIN}/edit", form | {"text": text})
            assert "Line 2, column 15" in answer.text, "where it ends too early"
            text = '{"id": "b000", "title": 5, "author": "a"}'
            answer = await send(client, f"{MAIN}/edit", form | {"text": text})
            assert "title" in answer.text
            assert "expected `str`" in answer.text.lower() or "Expected" in answer.text

    run(tmp_path, scenario)


def test_text_that_no_key_can_hold_stays_on_the_page(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            revision = str((await served.store.row("shelf:hall")).revision)  # type: ignore[union-attr]
            form = {"k": "shelf:hall", "revision": revision, "action": "preview"}
            text = '{"place": "hall", "height": 12345678901234567890}'
            answer = await send(client, f"{MAIN}/edit", form | {"text": text})
            assert 400 <= answer.status_code < 500
            assert 'role="alert"' in answer.text
            assert "12345678901234567890" in answer.text

    run(tmp_path, scenario)


def test_a_change_is_undone_and_the_undo_too(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async def undo(client: httpx.AsyncClient) -> httpx.Response:
            lines = (await client.get("/studio/journal.json")).json()["lines"]
            return await client.post("/studio/journal", data={"id": lines[0]["id"]})

        async def title() -> str | None:
            book = await served.store.get(BOOK, id="b000")
            return None if book is None else f"{book.title} {book.lender}"

        async with served.signed_in(unlocked=True) as client:
            await edit(client, "save", title="Changed")
            assert "secret friend" not in (await client.get("/studio/journal")).text
            assert await title() == "Changed secret friend"
            assert (await undo(client)).status_code == 303
            assert await title() == "Title 0 secret friend"
            assert (await undo(client)).status_code == 303
            assert await title() == "Changed secret friend"
            await edit(client, "delete")
            assert await title() is None
            assert (await undo(client)).status_code == 303
            assert await title() == "Changed secret friend"
            await edit(client, "save", title="Again")
            await served.store.put(BOOK, Book("b000", "By another", "lem"))
            assert (await undo(client)).status_code in (409, 412)
            assert await title() == "By another "

    run(tmp_path, scenario)


def test_a_change_of_large_values_is_in_the_journal_and_can_be_undone(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        long = Book("b000", "Title 0", "lem", lender="x" * 250_000)
        await served.store.put(BOOK, long)
        async with served.signed_in(unlocked=True) as client:
            saved = await edit(client, "save", pages="5")
            assert saved.status_code == 303, "a line has room for one of the values"
            [line] = (await client.get("/studio/journal.json")).json()["lines"][:1]
            assert (line["action"], line["after"]) == ("save", None)
            answer = await client.post("/studio/journal", data={"id": line["id"]})
            assert answer.status_code == 303
            assert await served.store.get(BOOK, id="b000") == long
            quotes = Book("b000", "Title 0", "lem", lender='"' * 120_000)
            await served.store.put(BOOK, quotes)
            assert (await edit(client, "save", pages="5")).status_code == 303
            [line] = (await client.get("/studio/journal.json")).json()["lines"][:1]
            assert line["before"] is None, "the text is longer in the line than it is stored"

    run(tmp_path, scenario)


def test_a_viewer_and_a_locked_session_can_write_nothing(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        before = await served.store.revision()
        for scopes in (("studio:read",), ()):
            async with served.signed_in(*scopes) as client:
                for action in ("save", "delete"):
                    answer = await edit(client, action, title="Never")
                    assert answer.status_code == 403
                answer = await client.post("/studio/journal", data={"id": "x"})
                assert answer.status_code == 403
        assert await served.store.revision() == before

    run(tmp_path, scenario)


def test_derived_rows_cannot_be_edited(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            params = {"k": "by-author:lem:b000"}
            assert (await client.get(f"{MAIN}/edit", params=params)).status_code == 400

    run(tmp_path, scenario)


def test_undo_does_not_delete_a_record_whose_old_value_was_too_large_to_keep(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        await served.store.put(BOOK, Book("b000", "Title 0", "lem", tags=["x" * 1_000] * 310))
        async with served.signed_in(unlocked=True) as client:
            assert (await edit(client, "save", tags="[]")).status_code == 303
            line = (await client.get("/studio/journal.json")).json()["lines"][0]
            answer = await client.post("/studio/journal", data={"id": line["id"]})
            assert answer.status_code == 400
            assert "too large" in answer.text
        book = await served.store.get(BOOK, id="b000")
        assert book is not None
        assert book.tags == []

    run(tmp_path, scenario)


def test_a_save_without_a_revision_is_rejected(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            for revision in ("", "1x", "9" * 5_000):
                form = {"k": "book:b000", "revision": revision, "action": "delete"}
                answer = await send(client, f"{MAIN}/edit", form)
                assert answer.status_code == 400, revision
        assert await served.store.get(BOOK, id="b000") is not None

    run(tmp_path, scenario)


def test_text_that_is_not_an_object_is_rejected_for_a_record_with_private_members(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            form = {"k": "book:b000", "revision": "1", "action": "preview", "text": "[1]"}
            answer = await send(client, f"{MAIN}/edit", form)
            assert answer.status_code == 400
            assert "not a JSON object" in answer.text

    run(tmp_path, scenario)


def test_a_stored_value_that_is_not_an_object_is_masked_on_the_page_of_its_edit(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        batch = Batch(puts=(Put("book:b000", b'{"lender": "secret friend"'),))
        await served.engine.commit("main", batch)
        async with served.signed_in("studio:read") as client:
            for page in ("edit", "edit.json", "key.json"):
                answer = await client.get(f"{MAIN}/{page}", params={"k": "book:b000"})
                assert answer.status_code == 200
                assert "secret friend" not in answer.text, page

    run(tmp_path, scenario)


@pytest.mark.parametrize("lost", ["commit", "read"])
def test_a_change_whose_outcome_is_unknown_keeps_its_line(tmp_path: Path, lost: str) -> None:
    """The commit was made and its response lost, or the record could not be read after it."""

    async def main() -> None:
        engine = FaultyEngine(await open_engine("memory:"))
        async with library(tmp_path, engine) as served, served.signed_in(unlocked=True) as client:
            await fill(served.store)

            async def disconnect() -> None:
                engine.faults.append(Fault(None, "read", UnavailableError))

            engine.faults = {
                "commit": [Fault(None, "commit", UnknownOutcomeError, after=True)],
                "read": [meanwhile(None, disconnect, call="commit", after=True)],
            }[lost]
            answer = await edit(client, "save", title="Changed")
            assert answer.status_code in (503, 504), answer.text
            engine.faults = []
            book = await served.store.get(BOOK, id="b000")
            assert book is not None
            assert book.title == "Changed"
            line = (await client.get("/studio/journal.json")).json()["lines"][0]
            assert (line["action"], line["key"], line["revision"]) == ("save", "book:b000", None)
            assert "Title 0" in line["before"]
            assert "outcome unknown" in (await client.get("/studio/journal")).text
        await engine.close()

    asyncio.run(main())
