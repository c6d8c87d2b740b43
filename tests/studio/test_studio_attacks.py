"""Attacks on the Studio: stored markup, other origins, frames, viewers, stolen sessions."""

import asyncio
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path

from structlog.testing import capture_logs

from keyhouse import Store
from keyhouse.engine import Batch, Put
from tests.studio.support.library import BOOK, SCHEMA, Book, Library, fill, library, token

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>'\""
WRITES = (
    ("/studio/lock", {"unlocked": "on"}),
    ("/studio/sessions", {"id": "x"}),
    ("/studio/journal", {"id": "x"}),
    ("/studio/job", {"id": "x"}),
    ("/studio/job/undo", {"id": "x"}),
    ("/studio/library/main/edit", {"k": "book:b000", "revision": "1", "action": "save"}),
    ("/studio/library/main/edit", {"k": "book:b000", "revision": "1", "action": "delete"}),
    ("/studio/library/main/verify", {"action": "repair"}),
    ("/studio/library/main/verify", {"action": "verify"}),
    ("/studio/library/main/bulk", {"prefix": "book:", "count": "3"}),
    ("/studio/library/main/reveal", {"k": "book:b000"}),
)


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def run(data: Path, scenario: Callable[[Library], Awaitable[None]]) -> None:
    async def main() -> None:
        async with library(data) as served:
            await fill(served.store)
            await scenario(served)

    asyncio.run(main())


def test_markup_in_keys_values_and_spaces_stays_text(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        hostile = Store(SCHEMA, served.engine, SCRIPT)
        book = Book(SCRIPT, SCRIPT, SCRIPT, tags=[SCRIPT])
        key = (await hostile.put(BOOK, book)).key
        odd = Put(f"odd:{SCRIPT}", SCRIPT.encode())
        await served.engine.commit(SCRIPT, Batch(puts=(odd,)))
        async with served.signed_in(unlocked=True) as client:
            base = client.build_request("GET", "/studio/library/").url
            from urllib.parse import quote

            space = f"/studio/library/{quote(SCRIPT, safe='')}"
            pages = [
                ("/studio/library/", {}),
                (f"{space}/", {}),
                (f"{space}/tree", {}),
                (f"{space}/tree", {"at": "by-author:"}),
                (f"{space}/book", {}),
                (f"{space}/book", {"q": SCRIPT}),
                (f"{space}/key", {"k": key}),
                (f"{space}/key", {"k": odd.key}),
                (f"{space}/edit", {"k": key}),
                (f"{space}/edit", {"k": key, "mode": "text"}),
                (f"{space}/verify", {}),
                (f"{space}/bulk", {"prefix": "book:"}),
                (f"/studio/{quote(SCRIPT, safe='')}/", {}),
            ]
            for path, params in pages:
                page = await client.get(path, params=params)
                assert page.status_code in (200, 404), (path, page.text)
                for tag, attributes in Tags(page.text).found:
                    assert tag != "img", path
                    assert not [name for name in attributes if name.startswith("on")], path
                    assert tag != "script" or (attributes["src"] or "").endswith(".js"), path
                policy = page.headers["content-security-policy"]
                assert "script-src 'self'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
            assert str(base)

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
                for path, form in (*WRITES, ("/studio/login", {"token": token()})):
                    answer = await client.post(path, data=form, headers=headers)
                    assert answer.status_code == 403, (path, headers)
        assert await served.store.revision() == before

    run(tmp_path, scenario)


def test_a_viewer_is_rejected_on_every_route_that_writes(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        before = await served.store.revision()
        listed = {route.path for route in served.studio.spec().routes if route.method == "POST"} - {
            "/login",
            "/logout",
            "/views",
        }
        tried = {path.removeprefix("/studio") for path, _ in WRITES}
        assert {
            each.replace("{system}", "library").replace("{space}", "main") for each in listed
        } == tried
        async with served.signed_in("studio:read") as viewer:
            for path, form in WRITES:
                assert (await viewer.post(path, data=form)).status_code == 403, path
        async with served.client() as stranger:
            for path, form in WRITES:
                answer = await stranger.post(path, data=form)
                assert answer.status_code == 303, path
                assert answer.headers["location"].startswith("/studio/login")
        assert await served.store.revision() == before

    run(tmp_path, scenario)


def test_no_page_log_or_row_has_the_secret_of_a_session(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        with capture_logs() as logs:
            async with served.signed_in() as client:
                secret = client.cookies["keyhouse_studio"]
                for path in ("/studio/", "/studio/sessions", "/studio/journal", "/studio/library/"):
                    page = await client.get(path)
                    assert secret not in page.text
                    assert secret.partition(".")[2] not in page.text
                    assert page.headers["referrer-policy"] == "same-origin"
                    assert "no-store" in page.headers["cache-control"]
            assert secret.partition(".")[2] not in str(logs)
            assert token() not in str(logs)

    run(tmp_path, scenario)
