"""The Studio in a real browser."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext

from tests.studio.support.library import Library, fill, library, token
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


def test_every_page_is_accessible_in_every_theme_and_width(tmp_path: Path) -> None:
    async def scenario(one: Visitor) -> None:
        await one.browser.check(f"{one.url}/studio/login")
        for path in PAGES:
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
