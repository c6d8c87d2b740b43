"""Pages in a real browser: opened in every theme and width, and checked for what no page may do.

    async with open_browser() as browser:
        async with browser.visit(url, dark=True, width=320) as page:
            await page.get_by_role("button", name="Save").click()
        await browser.check(url)   # axe in both themes, wide and at 320 px

Leaving a visit fails the test if the page broke its Content Security Policy, logged an error, or
sent a request to another origin.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tools.browser import ADVICE, AXE_SCRIPT, find

WIDE, NARROW = 1_280, 320
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", event => window.__violations.push(
  `${event.violatedDirective}: ${event.blockedURI} (${event.sourceFile}:${event.lineNumber})`));
"""


class Pages:
    """One running browser. Each visit has its own cookies, unless it is given a `context`."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def context(
        self, *, dark: bool = False, width: int = WIDE, scripts: bool = True, **options: Any
    ) -> BrowserContext:
        """Return a new browser context, as a person's own browser: cookies, theme, width."""
        context = await self._browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 800},
            locale="en-US",
            java_script_enabled=scripts,
            **options,
        )
        context.set_default_timeout(45_000)
        if scripts:
            await context.add_init_script(_VIOLATIONS)
        return context

    @asynccontextmanager
    async def visit(
        self,
        url: str,
        *,
        context: BrowserContext | None = None,
        allowed_errors: tuple[str, ...] = (),
        **options: Any,
    ) -> AsyncIterator[Page]:
        """Open a page. `allowed_errors` are parts of console messages that the test provokes."""
        own = context is None
        context = context or await self.context(**options)
        page = await context.new_page()
        problems: list[str] = []
        origin = _origin(url)
        page.on(
            "console",
            lambda message: (
                problems.append(f"console: {message.text}")
                if message.type == "error"
                and not any(each in message.text for each in allowed_errors)
                else None
            ),
        )
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on(
            "request",
            lambda request: (
                problems.append(f"another origin: {request.url}")
                if _origin(request.url) != origin and not request.url.startswith(("data:", "blob:"))
                else None
            ),
        )
        try:
            await page.goto(url)
            yield page
            if options.get("scripts", True) and not page.is_closed():
                problems += await page.evaluate("window.__violations || []")
        finally:
            await page.close()
            if own:
                await context.close()
        assert problems == [], problems

    async def check(self, url: str, *, context_options: dict[str, Any] | None = None) -> None:
        """Check the accessibility of a page in both themes, wide and narrow."""
        async with self.visit(url, **(context_options or {})) as page:
            await check_themes(page)


async def check_themes(page: Page) -> None:
    """Check the accessibility of an open page in both themes, wide and narrow."""
    for dark in (False, True):
        await page.emulate_media(color_scheme="dark" if dark else "light")
        for width in (WIDE, NARROW):
            await page.set_viewport_size({"width": width, "height": 800})
            await check_page(page, f"{'dark' if dark else 'light'}, {width} px")


async def check_page(page: Page, what: str = "") -> None:
    """Fail if axe finds a problem, or if the page scrolls sideways."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT.read_text())
    found = await page.evaluate(
        "rules => axe.run(document, {runOnly: rules}).then(result => result.violations.map("
        "each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`))",
        _RULES,
    )
    assert found == [], (page.url, what, found)
    overflow = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{page.url} scrolls sideways by {overflow} px ({what})"


@asynccontextmanager
async def open_browser() -> AsyncIterator[Pages]:
    """Start a browser. Without one the test fails: it is never skipped."""
    found = find()
    if found is None or not AXE_SCRIPT.exists():
        pytest.fail(ADVICE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**found.launch_options)
        try:
            yield Pages(browser)
        finally:
            await browser.close()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
