"""The page of an edit keeps typed text, whatever the form is answered with."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from tests.studio.support.library import BOOK, Book, Library, run

MAIN = "/studio/library/main"
TYPED = '{"id": "b000", "title": "Typed",\n  "author": "lem"}'


async def submit(client: httpx.AsyncClient, action: str, **form: Any) -> httpx.Response:
    address = {"k": "book:b000", "mode": "form" if "member" in form else "text"}
    page = (await client.get(f"{MAIN}/edit.json", params=address)).json()
    data = {"revision": page["revision"], "action": action} | form
    return await client.post(f"{MAIN}/edit", params=address, data=data)


def typed(page: httpx.Response) -> str:
    """Return the text of the editor."""
    [text] = re.findall(r'<textarea id="text"[^>]*>(.*?)</textarea>', page.text, re.DOTALL)
    return str(text.replace("&#34;", '"'))


def test_unlock_and_lock_keep_the_text_and_come_back_to_the_edit(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            page = await submit(client, "unlock", text="{ not yet")
            assert page.status_code == 200
            assert typed(page) == "{ not yet"
            assert "Edits unlocked" in page.text
            assert 'action="/studio/library/main/edit?k=book%3Ab000&amp;mode=text"' in page.text
            assert str(page.url).endswith("/edit?k=book%3Ab000&mode=text"), "which loads again"
            page = await submit(client, "lock", text=TYPED)
            assert typed(page) == TYPED
            assert "Edits locked" in page.text
            lines = (await client.get("/studio/journal.json")).json()["lines"]
            assert [line["action"] for line in lines[:2]] == ["lock", "unlock"]
            book = await served.store.get(BOOK, id="b000")
            assert book is not None
            assert book.title == "Title 0"

    run(tmp_path, scenario)


def test_a_save_in_a_locked_session_keeps_the_text(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            page = await submit(client, "save", text=TYPED)
            assert page.status_code == 403
            assert typed(page) == TYPED
            assert "unlock them first" in page.text

    run(tmp_path, scenario)


def test_an_invalid_member_loses_none_of_the_others(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            form = {
                "member": ["id", "title", "author", "pages", "price"],
                "kind": ["text", "text", "text", "json", "json"],
                "value": ["b000", "New title", "asimov", "many", "9.75"],
            }
            for action in ("preview", "save", "unlock"):
                page = await submit(client, action, **form)
                for value in ("New title", "asimov", "many", "9.75"):
                    assert f'value="{value}"' in page.text, (action, value)
                if action != "unlock":
                    assert page.status_code == 400
                    assert "Not JSON." in page.text

    run(tmp_path, scenario)


def test_seconds_that_are_not_a_number_and_a_value_of_another_record_keep_the_text(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            for ttl in ("soon", "-5", "1.5", "9" * 20, "²"):
                page = await submit(client, "save", text=TYPED, ttl=ttl)
                assert page.status_code == 400, ttl
                assert typed(page) == TYPED
                assert f'name="ttl" inputmode="numeric" value="{ttl}"' in page.text
                assert "are a whole number" in page.text
            page = await submit(client, "save", text=TYPED, ttl="0")
            assert 400 <= page.status_code < 500
            assert typed(page) == TYPED
            text = TYPED.replace("Typed", "Title 1")
            page = await submit(client, "save", text=text)
            assert page.status_code == 409
            assert typed(page) == text
            assert "Another record holds this value. title:Title 1" in page.text

    run(tmp_path, scenario)


def test_a_form_that_is_sent_after_the_session_has_ended_is_sent_again(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            page = (await client.get(f"{MAIN}/edit.json", params={"k": "book:b000"})).json()
            await client.post("/studio/logout")
            for form in (
                {"text": TYPED, "ttl": "60", "never_expires": "true"},
                {"member": ["id", "title"], "kind": ["text"] * 2, "value": ["b000", "<b>\n'\""]},
            ):
                sent = {"revision": page["revision"], "action": "preview"} | form
                address = {"k": "book:b000", "mode": "text"}
                answer = await client.post(f"{MAIN}/edit", params=address, data=sent)
                assert answer.status_code == 401
                assert (
                    'action="/studio/library/main/edit?k=book%3Ab000&amp;mode=text"' in answer.text
                )
                found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text)
                kept: dict[str, list[str]] = {}
                for name, value in found:
                    kept.setdefault(name, []).append(unescape(value))
                for name, value in sent.items():
                    assert kept[name] == (value if isinstance(value, list) else [value]), name
            assert "Title 0" in str(await served.store.get(BOOK, id="b000"))

    run(tmp_path, scenario)


def test_a_conflict_of_a_deletion_names_the_deletion_and_keeps_the_text(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            await served.store.put(BOOK, Book("b000", "Theirs", "lem"))
            old = {"k": "book:b000", "mode": "text"}
            form = {"revision": "1", "action": "delete", "text": TYPED}
            page = await client.post(f"{MAIN}/edit", params=old, data=form)
            assert page.status_code in (409, 412)
            [conflict] = re.findall(r'aria-label="Conflict">(.*?)</section>', page.text, re.DOTALL)
            stored, yours = conflict.split('<span class="label">Yours</span>')
            assert "Theirs" in stored
            assert "Delete the record." in yours
            assert "Theirs" not in yours
            assert "Delete again to delete it as it is stored now" in page.text
            assert typed(page) == TYPED
            assert await served.store.get(BOOK, id="b000") is not None
            [revision] = re.findall(r'name="revision" value="(\d+)"', page.text)
            form["revision"] = revision
            page = await client.post(f"{MAIN}/edit", params=old, data=form)
            assert page.status_code == 303
            assert await served.store.get(BOOK, id="b000") is None
            page = await client.post(f"{MAIN}/edit", params=old, data=form)
            assert "The record is deleted already." in page.text

    run(tmp_path, scenario)
