"""The Studio in a real browser."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext

from tests.studio.support.library import BOOK, Book, Library, fill, library, token
from tests.support.browser_pages import Pages, open_browser
from tests.support.page_server import serving

pytestmark = pytest.mark.browser

Scenario = Callable[["Visitor"], Awaitable[None]]

PAGES = (
    "/studio/",
    "/studio/journal",
    "/studio/sessions",
    "/studio/library/",
    "/studio/library/schema",
    "/studio/library/main/",
    "/studio/library/main/tree",
    "/studio/library/main/tree?at=by-author:",
    "/studio/library/main/book",
    "/studio/library/main/book?q=pages%3D1",
    "/studio/library/main/key?k=book:b000",
    "/studio/library/main/key?k=by-author:lem:b000",
    "/studio/library/main/key?k=nothing",
    "/studio/library/main/edit?k=book:b000",
    "/studio/library/main/edit?k=book:b000&mode=text",
    "/studio/library/main/verify",
    "/studio/library/main/bulk?prefix=book:",
    "/studio/jobs",
    "/studio/slow",
)


class Visitor:
    """A browser that has signed in."""

    def __init__(self, served: Library, url: str, browser: Pages, context: BrowserContext) -> None:
        self.served = served
        self.url = url
        self.browser = browser
        self.context = context

    def visit(self, path: str, **options: Any) -> Any:
        return self.browser.visit(f"{self.url}{path}", context=self.context, **options)

    async def check(self, path: str) -> None:
        state = await self.context.storage_state()
        options = {"storage_state": state}
        await self.browser.check(f"{self.url}{path}", context_options=options)


@asynccontextmanager
async def visitor(data: Path) -> AsyncIterator[Visitor]:
    async with library(data) as served:
        await fill(served.store)
        async with serving(served.app) as url, open_browser() as browser:
            context = await browser.context()
            async with browser.visit(f"{url}/studio/", context=context) as page:
                await page.get_by_label("Operator's token").fill(token())
                await page.get_by_role("button", name="Sign in").click()
                await page.get_by_role("heading", name="Systems").wait_for()
            yield Visitor(served, url, browser, context)


def run(data: Path, scenario: Scenario) -> None:
    async def main() -> None:
        async with visitor(data) as one:
            await scenario(one)

    asyncio.run(main())


def test_the_login_is_accessible_in_every_theme_and_width(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        await one.browser.check(f"{one.url}/studio/login")

    run(tmp_path, scenario)


@pytest.mark.parametrize("part", range(3))
def test_every_page_is_accessible_in_every_theme_and_width(part: int, tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        for path in PAGES[part::3]:
            await one.check(path)

    run(tmp_path, scenario)


def test_an_operator_walks_from_the_systems_to_a_space_and_signs_out(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        async with one.visit("/studio/") as page:
            await page.get_by_role("link", name="library", exact=True).click()
            await page.get_by_role("link", name="main", exact=True).click()
            assert "book:{id}" in await page.get_by_role("region", name="Records").inner_text()
            await page.get_by_role("button", name="Unlock").click()
            assert "Edits are unlocked" in await page.get_by_role("status").inner_text()
            await page.get_by_role("button", name="Lock").click()
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_label("Operator's token").wait_for()

    run(tmp_path, scenario)


def test_a_change_of_another_client_appears_and_its_time_to_live_counts_down(
    tmp_path: Path,
) -> None:
    async def scenario(one: Visitor) -> None:
        store = one.served.store
        async with one.visit("/studio/library/main/key?k=book:b000") as page:
            await page.get_by_text("Live: changes appear here.").wait_for()
            await store.put(BOOK, Book("b000", "By another", "lem"), ttl=90)
            await page.get_by_text("By another").wait_for()
            countdown = page.locator("kh-ttl")
            before = await countdown.inner_text()
            assert "min" in before
            await page.wait_for_function(
                "before => document.querySelector('kh-ttl').textContent !== before", arg=before
            )

    run(tmp_path, scenario)


def test_an_edit_is_previewed_meets_a_conflict_is_saved_and_undone(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        store = one.served.store
        async with one.visit(
            "/studio/library/main/key?k=book:b000", allowed_errors=("412", "409")
        ) as page:
            await page.get_by_role("button", name="Unlock").click()
            await page.get_by_role("link", name="Edit", exact=True).click()
            await page.get_by_label("author").fill("asimov")
            await page.get_by_role("button", name="Preview", exact=True).click()
            preview = await page.get_by_role("region", name="Preview").inner_text()
            assert "put by-author:asimov:b000" in preview
            assert "delete by-author:lem:b000" in preview
            await store.put(BOOK, Book("b000", "By another", "lem"))
            await page.get_by_role("button", name="Save").click()
            conflict = await page.get_by_role("region", name="Conflict").inner_text()
            assert "By another" in conflict
            assert "asimov" in conflict
            await page.get_by_role("button", name="Save").click()
            await page.get_by_text("by-author:asimov:b000").wait_for()
            await page.get_by_role("link", name="Journal").click()
            await page.get_by_role("button", name="Undo save of book:b000").click()
            await page.get_by_role("link", name="title:By another").wait_for()

    run(tmp_path, scenario)


def test_keys_move_filter_and_edit_without_a_mouse(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        async with one.visit("/studio/library/main/book") as page:
            await page.keyboard.press("/")
            await page.keyboard.type("author=lem")
            await page.keyboard.press("Enter")
            await page.get_by_role("link", name="book:b002").wait_for()
            await page.keyboard.press("j")
            await page.keyboard.press("j")
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="book:b002").wait_for()
            await page.keyboard.press("?")
            assert await page.locator("#help").is_visible()
            await page.keyboard.press("Escape")
            await page.keyboard.press("Control+k")
            await page.keyboard.type("by-author")
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="by-author:lem:b002").wait_for()
            await page.keyboard.press("g")
            await page.keyboard.type("book:b002")
            await page.keyboard.press("Enter")
            await page.get_by_role("heading", name="book:b002").wait_for()
            await page.keyboard.press("e")
            await page.get_by_label("title").wait_for()

    run(tmp_path, scenario)


def test_pages_work_without_scripts(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        context = await one.browser.context(
            scripts=False, storage_state=await one.context.storage_state()
        )
        url = f"{one.url}/studio/library/main/edit?k=book:b000"
        async with one.browser.visit(url, context=context, scripts=False) as page:
            await page.get_by_label("title").fill("Plain")
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_text("Preview: the commit").wait_for()

    run(tmp_path, scenario)
