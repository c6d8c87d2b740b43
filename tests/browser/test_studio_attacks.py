"""Attacks on the Studio by a real browser: pages of other origins, frames, stored scripts."""

from collections.abc import Iterator
from functools import partial
from urllib.parse import quote, urlencode

import pytest
from playwright.async_api import Frame, Page, Route

from keyhouse import Store
from keyhouse.engine import Batch, Put
from tests.browser.support.visitor import Studio, open_studio
from tests.studio.support.library import BOOK, Book
from tests.support.polling import until

pytestmark = pytest.mark.browser

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"{{7*7}}"
OTHER_SITE = "http://evil.example/"
OTHER_PORT = "http://127.0.0.1:9/"
"""Another origin of the same site, so that cookies of the Studio are sent."""


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with open_studio("sqlite", tmp_path_factory.mktemp("studio")) as opened:
        yield opened


async def show(page: Page, address: str, html: str) -> None:
    """Open a page of another origin, as if a server had sent it."""

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="text/html", body=html)

    await page.route(address, answer)
    await page.goto(address)


@pytest.mark.parametrize("origin", [OTHER_SITE, OTHER_PORT])
def test_a_form_of_another_origin_changes_nothing(studio: Studio, origin: str) -> None:
    async def scenario(space: str, store: Store) -> None:
        row = await store.row("book:b000")
        assert row is not None
        base = studio.visitor.url
        forms = {
            f"{space}/edit?k=book:b000": {"revision": str(row.revision), "action": "delete"},
            f"{space}/bulk?prefix=book:": {"count": "3"},
            f"{space}/verify": {"action": "repair"},
            f"{space}/key?k=book:b000": {"action": "reveal"},
            "/studio/lock": {"unlocked": "on"},
            "/studio/logout": {},
        }
        before = await store.revision()
        async with studio.visitor.operator(unlocked=True) as operator:
            page = await operator.context.new_page()
            for path, members in forms.items():
                inputs = "".join(
                    f'<input name="{name}" value="{value}">' for name, value in members.items()
                )
                form = (
                    f'<form method="post" action="{base}{path}">{inputs}<button>x</button></form>'
                )
                await show(page, origin, form)
                async with page.expect_navigation() as sent:
                    await page.click("button")
                answer = await sent.value
                assert answer is not None
                is_login = "/studio/login" in page.url  # the cookie was not sent
                assert answer.status == 403 or is_login, (path, answer.status)
                assert "secret friend" not in await page.content()
            await page.goto(f"{base}{space}/")
            assert "Edits unlocked" in await page.content(), "the session has not changed"
        assert await store.revision() == before

    studio.run(f"forgery {origin}", scenario)


def loaded_url(frame: Frame) -> str:
    """Return the address of a frame, or "" while it loads."""
    return frame.url.removeprefix("about:blank")


@pytest.mark.parametrize("origin", [OTHER_SITE, OTHER_PORT])
def test_no_page_is_shown_in_a_frame(studio: Studio, origin: str) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with studio.visitor.operator() as operator:
            page = await operator.context.new_page()
            for path in (f"{space}/key?k=book:b000", "/studio/journal", "/studio/login", "/"):
                html = f'<iframe src="{studio.visitor.url}{path}"></iframe>'
                await show(page, origin, html)
                [frame] = page.frames[1:]
                url = await until(partial(loaded_url, frame))
                assert url.startswith("chrome-error:"), path

    studio.run(f"frame {origin}", scenario)


def test_a_page_of_another_origin_reads_nothing_and_gets_no_referrer(
    studio: Studio,
) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with studio.visitor.operator() as operator:
            page = await operator.context.new_page()
            for origin in (OTHER_SITE, OTHER_PORT):
                await show(page, origin, "<p>waiting</p>")
                read = await page.evaluate(
                    "url => fetch(url, {credentials: 'include'})"
                    ".then(answer => answer.text(), error => 'refused')",
                    f"{studio.visitor.url}{space}/key.json?k=book:b000",
                )
                assert read == "refused"
                await page.goto(f"{studio.visitor.url}{space}/key?k=book:b000")
                async with page.expect_request(origin) as asked:
                    await page.evaluate("url => { location.href = url; }", origin)
                await page.get_by_text("waiting").wait_for()
                assert "referer" not in await (await asked.value).all_headers()

    studio.run("other origin", scenario)


def test_stored_scripts_do_not_run_on_any_page(studio: Studio) -> None:
    """A visit fails if the page logs an error, breaks its policy or asks another origin."""

    async def scenario(space: str, store: Store) -> None:
        hostile = studio.visitor.store(SCRIPT)
        key = (await hostile.put(BOOK, Book(SCRIPT, SCRIPT, SCRIPT, tags=[SCRIPT]))).key
        odd = f"odd:{SCRIPT}"
        await hostile.engine.commit(SCRIPT, Batch(puts=(Put(odd, SCRIPT.encode()),)))
        base = f"/studio/library/{quote(SCRIPT, safe='')}"
        pages = ["/studio/", "/studio/library/", f"{base}/", f"{base}/tree", f"{base}/book"]
        pages += [f"{base}/tree?{urlencode({'at': 'by-author:'})}", f"{base}/bulk?prefix=book:"]
        for each in (key, odd):
            pages.append(f"{base}/key?{urlencode({'k': each})}")
        pages += [f"{base}/edit?{urlencode({'k': key, 'mode': mode})}" for mode in ("form", "text")]
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit("/studio/journal") as page,
        ):
            opened: list[str] = []
            page.on("dialog", lambda dialog: opened.append(dialog.message))
            for path in pages:
                await page.goto(f"{studio.visitor.url}{path}")
                assert await page.locator("main img").count() == 0, path
                await page.keyboard.press("Control+k")
                await page.keyboard.type("a")
                assert await page.locator("#palette img").count() == 0, path
                await page.keyboard.press("Escape")
                assert "49" not in await page.locator("h1").inner_text()
            await page.goto(f"{studio.visitor.url}{base}/key?{urlencode({'k': key})}")
            await page.get_by_text("Live: changes appear here.").wait_for()
            await hostile.put(BOOK, Book(SCRIPT, SCRIPT, SCRIPT, pages=7, tags=[SCRIPT]))
            await page.get_by_text("Changed at revision").wait_for()
            assert opened == []

    studio.run("scripts", scenario)
