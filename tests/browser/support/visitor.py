"""A browser that stays open for the tests of a module, signed in to the Studio over one engine."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import BrowserContext, Page

from keyhouse import Store
from keyhouse.clock import SystemClock
from keyhouse.studio.sessions import COOKIE, cookie_of
from tests.studio.support.jobs import running_jobs
from tests.studio.support.library import SCHEMA, Library, fill, library
from tests.support.browser_pages import Pages, SharedBrowser, shared_browser
from tests.support.engine_openers import ALL
from tests.support.page_server import serving

PAGES: Final = (
    "/studio/",
    "/studio/journal",
    "/studio/sessions",
    "/studio/jobs",
    "/studio/slow",
    "/studio/library/",
    "/studio/library/schema",
    "{space}/",
    "{space}/tree",
    "{space}/tree?at=by-author:",
    "{space}/book",
    "{space}/book?q=pages%3D1",
    "{space}/key?k=book:b000",
    "{space}/key?k=by-author:lem:b000",
    "{space}/key?k=nothing",
    "{space}/edit?k=book:b000",
    "{space}/edit?k=book:b000&mode=text",
    "{space}/verify",
    "{space}/bulk",
    "{space}/bulk?record=book&q=author%3Dlem",
    "{space}/nothing",
)
"""Every page of the Studio; `{space}` is the space of a test."""


class Visitor:
    """One browser. Each `operator` has a separate session, and each test a space of its name."""

    def __init__(self, served: Library, url: str, browser: Pages) -> None:
        self.served = served
        self.url = url
        self.browser = browser

    def store(self, space: str) -> Store:
        return Store(SCHEMA, self.served.engine, space)

    @asynccontextmanager
    async def operator(
        self, *scopes: str, unlocked: bool = False, **options: Any
    ) -> AsyncIterator["Operator"]:
        context = await self.browser.context(**options)
        try:
            async with self.served.signed_in(*scopes, unlocked=unlocked) as client:
                name = cookie_of(self.url).name
                cookie = {"name": name, "value": client.cookies[COOKIE], "url": self.url}
            await context.add_cookies([cookie])  # type: ignore[list-item]
            yield Operator(self, context, scripts=options.get("scripts", True))
        finally:
            await context.close()


class Operator:
    """A signed-in browser context."""

    def __init__(self, visitor: Visitor, context: BrowserContext, *, scripts: bool) -> None:
        self._visitor = visitor
        self.context = context
        self._scripts = scripts

    @asynccontextmanager
    async def visit(
        self, path: str, *, allowed_errors: tuple[str, ...] = ()
    ) -> AsyncIterator[Page]:
        url = f"{self._visitor.url}{path}"
        options = {} if self._scripts else {"scripts": False}
        async with self._visitor.browser.visit(
            url, context=self.context, allowed_errors=allowed_errors, **options
        ) as page:
            yield page


Scenario = Callable[[str, Store], Awaitable[None]]


class Studio:
    """Runs scenarios with an open browser."""

    def __init__(self, browser: SharedBrowser, visitor: Visitor) -> None:
        self._browser = browser
        self.visitor = visitor

    def run(self, name: str, scenario: Scenario, books: int = 3) -> None:
        """Run a scenario over a space with books, named by its test."""
        space = re.sub(r"\W+", "-", name)[:60]

        async def main() -> None:
            store = self.visitor.store(space)
            await fill(store, books)
            await scenario(f"/studio/library/{space}", store)

        self._browser.run(main())


@contextmanager
def open_studio(engine: str, folder: Path) -> Iterator[Studio]:
    """Open the Studio over an engine, for the browser of this test process."""
    browser, stack = shared_browser(), AsyncExitStack()

    async def visitor() -> Visitor:
        opened = await ALL[engine](folder)(SystemClock())
        stack.push_async_callback(opened.close)
        served = await stack.enter_async_context(library(folder, opened))
        await stack.enter_async_context(running_jobs(served))
        url = await stack.enter_async_context(serving(served.app))
        return Visitor(served, url, browser.pages)

    try:
        yield Studio(browser, browser.run(visitor()))
    finally:
        browser.run(stack.aclose())
