"""Screenshots of pages for the docs: what the `*_screens` tools have in common."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from playwright.async_api import Page

from tests.support.browser_pages import Pages

__all__ = ["Screen", "take_screens"]

FOLDER: Final = Path(__file__).parent.parent / "docs" / "screens"

Step = Callable[[Page], Awaitable[None]]


async def nothing(_: Page) -> None:
    """Leave the page as it is."""


class Screen(NamedTuple):
    """A picture of a page. `prepare` is called when the page is open."""

    name: str
    path: str
    is_dark: bool = False
    width: int = 1_100
    height: int = 800
    prepare: Step = nothing


async def take_screens(
    browser: Pages,
    url: str,
    screens: Sequence[Screen],
    *,
    start: str,
    sign_in: Step,
    folder: Path = FOLDER,
) -> None:
    """Write the pictures. Each has its own browser, which signs in on the page `start`."""
    for screen in screens:
        context = await browser.context(dark=screen.is_dark, width=screen.width)
        async with browser.visit(f"{url}{start}", context=context) as page:
            await sign_in(page)
            await page.set_viewport_size({"width": screen.width, "height": screen.height})
            await page.goto(f"{url}{screen.path}")
            await screen.prepare(page)
            await page.screenshot(path=folder / f"{screen.name}.png")
        await context.close()
        print(f"Wrote {screen.name}.png")
