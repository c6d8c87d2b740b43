"""Attacks on the Studio: stored markup, other origins, frames, viewers, stolen sessions."""

import asyncio
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from structlog.testing import capture_logs

from keyhouse import Store
from keyhouse.auth import Caller
from keyhouse.engine import Batch, Put
from keyhouse.http import HtmlPage
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.studio.overview import Overview, SchemaPage
from keyhouse.studio.page_routes import PageRoutes
from keyhouse.studio.rendering import MASK
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import BOOK, SCHEMA, Book, Library, run, send, token

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>'\""
PREFERENCES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("/studio/login", {"token": "x"}),
    ("/studio/logout", {}),
)
"""Forms that a viewer has too: they write only what is the viewer's own."""

WRITES = (
    ("/studio/lock", {"unlocked": "on"}),
    ("/studio/sessions", {"id": "x"}),
    ("/studio/journal", {"id": "x"}),
    ("/studio/job", {"id": "x", "action": "cancel"}),
    ("/studio/job", {"id": "x", "action": "undo"}),
    ("/studio/library/main/edit", {"k": "book:b000", "revision": "1", "action": "save"}),
    ("/studio/library/main/edit", {"k": "book:b000", "revision": "1", "action": "delete"}),
    ("/studio/library/main/edit", {"k": "book:b000", "revision": "1", "action": "unlock"}),
    ("/studio/library/main/verify", {"action": "repair"}),
    ("/studio/library/main/verify", {"action": "verify"}),
    ("/studio/library/main/bulk", {"prefix": "book:", "count": "3"}),
    ("/studio/library/main/key", {"k": "book:b000", "action": "reveal"}),
)


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def inert(path: str, page: httpx.Response) -> None:
    """Fail if a page has an element, attribute or policy that could run something."""
    assert page.status_code in (200, 400, 404, 422), (path, page.text)
    for tag, attributes in Tags(page.text).found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "style"), (path, tag)
        assert not [name for name in attributes if name.startswith("on")], path
        assert tag != "script" or (attributes["src"] or "").endswith(".js"), path
        for name in ("href", "src", "action", "formaction"):
            target = attributes.get(name) or "/"
            assert target.startswith(("/studio/", "/assets/", "/library/", "#", "/")), (
                path,
                target,
            )
            assert not target.startswith("//"), (path, target)
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_markup_in_keys_values_and_spaces_stays_text(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        hostile = Store(SCHEMA, served.engine, SCRIPT)
        book = Book(SCRIPT, SCRIPT, SCRIPT, tags=[SCRIPT])
        key = (await hostile.put(BOOK, book)).key
        odd = Put(f"odd:{SCRIPT}", SCRIPT.encode())
        await served.engine.commit(SCRIPT, Batch(puts=(odd,)))
        async with running_jobs(served), served.signed_in(unlocked=True) as client:
            space = f"/studio/library/{quote(SCRIPT, safe='')}"
            job = await send(client, f"{space}/bulk", {"k": key, "count": "1"})
            id = (await ended(client, job))["job"]["id"]
            await hostile.put(BOOK, book)
            pages = [
                ("/studio/", {}),
                ("/studio/library/", {}),
                ("/studio/jobs", {}),
                ("/studio/job", {"id": id}),
                ("/studio/job", {"id": SCRIPT}),
                ("/studio/journal", {}),
                (f"{space}/", {}),
                (f"{space}/tree", {}),
                (f"{space}/tree", {"at": "by-author:"}),
                (f"{space}/tree", {"at": SCRIPT}),
                (f"{space}/book", {}),
                (f"{space}/book", {"q": SCRIPT}),
                (f"{space}/book", {"by": SCRIPT}),
                (f"{space}/key", {"k": key}),
                (f"{space}/key", {"k": odd.key}),
                (f"{space}/key", {"k": SCRIPT}),
                (f"{space}/edit", {"k": key}),
                (f"{space}/edit", {"k": key, "mode": "text"}),
                (f"{space}/verify", {}),
                (f"{space}/bulk", {"prefix": "book:"}),
                (f"{space}/bulk", {"prefix": SCRIPT}),
                (f"{space}/bulk", {"record": "book", "q": SCRIPT}),
                (f"{space}/bulk", {"k": key}),
                (f"{space}/{quote(SCRIPT, safe='')}", {}),
                (f"/studio/{quote(SCRIPT, safe='')}/", {}),
                ("/studio/login", {"next": SCRIPT, "link": SCRIPT}),
            ]
            for path, params in pages:
                inert(path, await client.get(path, params=params))
            form = {"k": key, "revision": "1", "action": "preview", "mode": "text"}
            for text in (SCRIPT, f'{{"id": "{SCRIPT[:8]}"}}'):
                inert("preview", await send(client, f"{space}/edit", form | {"text": text}))

    run(tmp_path, scenario)


def test_an_export_is_a_download_that_no_browser_renders(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        hostile = Store(SCHEMA, served.engine, "a\r\nSet-Cookie: x=1")
        await hostile.put(BOOK, Book("b", SCRIPT, "lem"))
        async with served.signed_in() as client:
            space = f"/studio/library/{quote(hostile.space, safe='')}"
            for params in ({"record": "book"}, {"prefix": "book:"}):
                answer = await client.get(f"{space}/export", params=params)
                assert answer.headers["content-type"] == "application/jsonl"
                assert answer.headers["content-disposition"].startswith("attachment")
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert "set-cookie" not in answer.headers

    run(tmp_path, scenario)


def test_no_page_can_be_framed_by_another_site(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            pages = [
                route.path
                for route in served.studio.spec().routes
                if route.method == "GET" and "." not in route.path and "assets" not in route.path
            ]
            assert len(pages) > 15
            for path in pages:
                filled = path.replace("{system}", "library").replace("{space}", "main")
                filled = filled.replace("{record}", "book")
                if filled.endswith("/live"):
                    continue
                params = {"k": "book:b000"} if filled.endswith(("/key", "/edit")) else {}
                page = await client.get(f"/studio{filled}", params=params, follow_redirects=True)
                if not page.headers["content-type"].startswith("text/html"):
                    assert filled.endswith("/export"), "JSON, which no frame renders"
                    continue
                assert "frame-ancestors 'none'" in page.headers["content-security-policy"], path
                assert page.headers["cross-origin-opener-policy"] == "same-origin", path

    run(tmp_path, scenario)


def test_forms_of_another_site_are_rejected(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        before = await served.store.revision()
        async with served.signed_in(unlocked=True) as client:
            for headers in (
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
                {"Origin": "https://evil.example"},
            ):
                for path, form in (*WRITES, *PREFERENCES):
                    answer = await send(client, path, form, headers=headers)
                    assert answer.status_code == 403, (path, headers)
        assert await served.store.revision() == before

    run(tmp_path, scenario)


def test_a_viewer_is_rejected_on_every_route_that_writes(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        before = await served.store.revision()
        filled = {
            f"/studio{route.path}".replace("{system}", "library").replace("{space}", "main")
            for route in served.studio.spec().routes
            if route.method != "GET"
        }
        assert filled == {path for path, _ in (*WRITES, *PREFERENCES)}, "all of the routing table"
        async with served.signed_in("studio:read") as viewer:
            for path, form in WRITES:
                assert (await send(viewer, path, form)).status_code == 403, path
        async with served.client() as stranger:
            for path, form in (*WRITES, *PREFERENCES[1:]):
                answer = await send(stranger, path, form)
                if path.endswith("/edit"):
                    assert answer.status_code == 401, "a page to send the form again"
                    continue
                assert answer.status_code == 303, path
                assert answer.headers["location"].startswith("/studio/login")
        assert await served.store.revision() == before

    run(tmp_path, scenario)


def test_a_preview_does_not_tell_whether_a_private_value_was_guessed(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        key = {"k": "book:b000", "mode": "text"}

        async def submit(client: httpx.AsyncClient, action: str, lender: str) -> httpx.Response:
            page = (await client.get("/studio/library/main/edit.json", params=key)).json()
            text = page["text"].replace("{", f'{{"\\u006cender": "{lender}", ', 1)
            form = {"revision": page["revision"], "action": action, "text": text}
            return await client.post("/studio/library/main/edit", params=key, data=form)

        for scope in ("studio:read", "studio:write"):
            async with served.signed_in(scope, unlocked=scope == "studio:write") as client:
                right = await submit(client, "preview", "secret friend")
                wrong = await submit(client, "preview", "another friend")
                assert right.status_code == wrong.status_code == 403
                assert "Remove from the text: lender" in right.text
                assert right.text.replace("secret", "another") == wrong.text
                assert (await submit(client, "save", "another friend")).status_code == 403
                masked = await submit(client, "preview", MASK)
                assert "No value changes." in masked.text
        async with served.signed_in(unlocked=True) as admin:
            assert (await submit(admin, "save", "another friend")).status_code == 303
        book = await served.store.get(BOOK, id="b000")
        assert book is not None
        assert book.lender == "another friend"

    run(tmp_path, scenario)


def test_an_address_without_a_session_has_a_rate(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        form = {"revision": "1", "action": "save", "text": "x" * 1_000_000}
        path = "/studio/library/main/edit?k=book:b000"
        async with served.client() as stranger, served.signed_in() as operator:
            served_before = 0
            while (answer := await stranger.post(path, data=form)).status_code != 429:
                served_before += 1
                assert served_before < 300, "a large form counts as several requests"
            assert served_before > 10
            assert "Too many requests" in answer.text
            assert (await operator.get("/studio/")).status_code == 200, "who is signed in is served"

    run(tmp_path, scenario)


def test_a_form_without_a_session_is_shown_again_up_to_the_size_of_a_record(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        form = {"revision": "1", "action": "save", "text": "x" * VALUE_BYTES_MAX}
        path = "/studio/library/main/edit?k=book:b000"
        async with served.client() as stranger:
            answer = await stranger.post(path, data=form)
            assert answer.status_code == 401
            assert form["text"] in answer.text
            answer = await stranger.post(path, data=form | {"text": "x" * 500_000})
            assert answer.status_code == 413
            assert "too large to be shown again" in answer.text
            assert len(answer.content) < 10_000

    run(tmp_path, scenario)


def test_no_page_log_row_or_address_has_the_secret_of_a_session(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        with capture_logs() as logs:
            async with served.client() as client:
                link = await served.studio.sessions.new_link()
                page = await client.get("/studio/login", params={"link": link})
                assert page.headers["referrer-policy"] == "same-origin", "no other site sees it"
                answer = await client.post("/studio/login", data={"token": link})
                assert answer.headers["location"] == "/studio/", "the link is not in an address"
                cookie = answer.headers["set-cookie"]
                for part in ("HttpOnly", "SameSite=Strict", "Path=/studio"):
                    assert part in cookie
                again = await client.post("/studio/login", data={"token": link})
                assert again.status_code == 401, "a link works once"
            async with served.signed_in() as client:
                secret = client.cookies["keyhouse_studio"]
                for path in ("/studio/", "/studio/sessions", "/studio/journal", "/studio/library/"):
                    page = await client.get(path)
                    assert secret not in page.text
                    assert secret.partition(".")[2] not in page.text
                    assert secret.partition(".")[2] not in str(page.url)
                    assert page.headers["referrer-policy"] == "same-origin"
                    assert "no-store" in page.headers["cache-control"]
            for each in (secret.partition(".")[2], token(), link):
                assert each not in str(logs)
        own = served.studio.sessions.stored
        rows = [row async for row in own.store.row_scan()]
        for row in rows:
            assert secret.partition(".")[2].encode() not in row.value
            assert link.encode() not in row.value

    run(tmp_path, scenario)


def test_a_session_is_not_found_by_a_part_of_its_cookie(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            id, _, secret = client.cookies["keyhouse_studio"].partition(".")
        for stolen in (id, f"{id}.", f"{id}.{secret[:-1]}", f".{secret}", f"{id}.{secret}x"):
            headers = {"Cookie": f"keyhouse_studio={stolen}"}
            async with served.client(headers=headers) as thief:
                assert (await thief.get("/studio/index.json")).status_code == 401, stolen

    run(tmp_path, scenario)


def test_pages_that_are_loaded_at_once_are_rendered_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 threads that render kept the event loop from the interpreter for 50 ms."""
    rendering, most = threading.Semaphore(1), []
    render = PageRoutes.render_now

    def alone(self: PageRoutes, *arguments: Any, **options: Any) -> HtmlPage:
        most.append(rendering.acquire(blocking=False))
        try:
            return render(self, *arguments, **options)
        finally:
            rendering.release()

    monkeypatch.setattr(PageRoutes, "render_now", alone)

    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            loads = [client.get("/studio/library/schema") for _ in range(16)]
            pages = await asyncio.gather(*loads)
        assert [page.status_code for page in pages] == [200] * 16

    run(tmp_path, scenario)
    assert most == [True] * 16


def test_one_page_in_a_turn_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of one operator held up all requests: NATS requests waited 0.5 s."""
    turn = 0
    turns: list[int] = []
    schema = Overview.schema

    async def counted(self: Overview, system: str, caller: Caller) -> SchemaPage:
        turns.append(turn)
        return await schema(self, system, caller)

    monkeypatch.setattr(Overview, "schema", counted)

    async def scenario(served: Library) -> None:
        nonlocal turn
        async with served.signed_in() as client:
            loads = [
                asyncio.create_task(client.get("/studio/library/schema.json")) for _ in range(16)
            ]
            while not all(each.done() for each in loads):
                turn += 1
                await asyncio.sleep(0)
        assert [load.result().status_code for load in loads] == [200] * 16

    run(tmp_path, scenario)
    assert len(turns) == len(set(turns)) == 16
