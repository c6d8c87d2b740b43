"""Pages in a real browser: opened in every theme and width, and checked for what no page may do.

    async def scenario(browser: Pages) -> None:
        async with browser.visit(url, dark=True, width=320) as page:
            await page.get_by_role("button", name="Save").click()
        await browser.check(url)   # axe in both themes, wide and at 320 px

    run_in_browser(scenario)

Leaving a visit fails the test if the page broke its Content Security Policy, logged an error, or
sent a request to another origin. A failure leaves a screenshot of every open page in
`build/failures`, and names them in the report; the log of a service in the test's process is in the
captured output of the report.

A test process has one browser, which the first scenario starts and the end of the process stops.
Scenarios run on its event loop; the contexts that a scenario leaves open are closed.
"""

import asyncio
import atexit
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.sizes import size
from tools.browser import ADVICE, AXE_SCRIPT, find

WIDE, NARROW = 1_280, 320
FAILURES: Final = Path(__file__).parents[2] / "build" / "failures"
R = TypeVar("R")
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
            assert problems == [], problems
        except BaseException as error:
            await self.explain(error)
            raise
        finally:
            await page.close()
            if own:
                await context.close()

    async def explain(self, error: BaseException) -> None:
        """Add screenshots of all open pages to a failure, once."""
        if any(note.startswith("screenshot") for note in getattr(error, "__notes__", ())):
            return
        test = os.environ.get("PYTEST_CURRENT_TEST", "page").rpartition("::")[2].partition(" ")[0]
        pages = [page for context in self._browser.contexts for page in context.pages]
        for number, page in enumerate(pages, 1):
            path = FAILURES / f"{re.sub(r'[^a-z0-9_-]+', '-', test.lower())}-{number}.png"
            try:
                await page.screenshot(path=path, timeout=5_000)
                error.add_note(f"screenshot of {page.url}: {path}")
            except Exception as failure:
                error.add_note(f"screenshot of {page.url} failed: {failure}")

    async def close_contexts(self) -> None:
        for context in self._browser.contexts:
            await context.close()

    async def check(self, url: str, *, context_options: dict[str, Any] | None = None) -> None:
        """Check the accessibility of a page in both themes, wide and narrow."""
        async with self.visit(url, **(context_options or {})) as page:
            await check_themes(page)


LOOKS: Final = ((False, WIDE), (True, NARROW), (False, NARROW), (True, WIDE))
"""Dark or light, and the width. The first two have every theme, width, and element."""


async def check_themes(page: Page) -> None:
    """Check the accessibility of an open page in both themes, wide and narrow; in a usual run, in
    each once."""
    for dark, width in LOOKS[: size(2, 4, 4)]:
        await page.emulate_media(color_scheme="dark" if dark else "light")
        await page.set_viewport_size({"width": width, "height": 800})
        await check_page(page, f"{'dark' if dark else 'light'}, {width} px")


async def check_page(page: Page, what: str = "") -> None:
    """Fail if axe finds a problem, or if the page scrolls sideways."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT.read_text())
    problems = await page.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
        ".then(result => result.violations.map("
        "each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`))",
        _RULES,
    )
    assert problems == [], (page.url, what, problems)
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


class SharedBrowser:
    """The browser of this test process, and its event loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.pages = self._runner.run(self._stack.enter_async_context(open_browser()))

    def run(self, work: Awaitable[R]) -> R:
        """Run a coroutine on the loop of the browser."""

        async def main() -> R:
            try:
                return await work
            except BaseException as error:
                await self.pages.explain(error)
                raise
            finally:
                await self.pages.close_contexts()

        return self._runner.run(main())

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()


@cache
def shared_browser() -> SharedBrowser:
    browser = SharedBrowser()
    atexit.register(browser.close)
    return browser


def run_in_browser(scenario: Callable[[Pages], Awaitable[R]]) -> R:
    """Run a scenario with the browser of this test process."""
    browser = shared_browser()
    return browser.run(scenario(browser.pages))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
