"""Screenshots of the Studio for the docs: `python -m tools.studio_screens`."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from tests.studio.support.library import fill, library, token
from tests.support.browser_pages import open_browser
from tests.support.page_server import serving
from tools.page_screens import Screen, take_screens

MAIN: Final = "/studio/library/main"


async def preview(page: Page) -> None:
    await page.get_by_label("author").fill("asimov")
    await page.get_by_role("button", name="Preview", exact=True).click()
    region = page.get_by_role("region", name="Preview")
    await region.scroll_into_view_if_needed()
    await region.evaluate("each => each.scrollIntoView()")


SCREENS: Final = (
    Screen("studio-systems", "/studio/"),
    Screen("studio-tree", f"{MAIN}/tree?at=by-author:", is_dark=True),
    Screen("studio-table", f"{MAIN}/book?q=author%3Dlem"),
    Screen("studio-key", f"{MAIN}/key?k=book:b000"),
    Screen("studio-edit", f"{MAIN}/edit?k=book:b000", prepare=preview),
    Screen("studio-schema", "/studio/library/schema", is_dark=True),
)


async def sign_in(page: Page) -> None:
    await page.get_by_label("Operator's token").fill(token())
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", name="Systems").wait_for()


async def main() -> None:
    async with library(Path(tempfile.mkdtemp())) as served:
        await fill(served.store, 40)
        async with serving(served.app) as url, open_browser() as browser:
            await take_screens(browser, url, SCREENS, start="/studio/", sign_in=sign_in)


if __name__ == "__main__":
    asyncio.run(main())
