"""A browser that stays open for the tests of a module, signed in to the Studio over one engine."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import BrowserContext, Page

from keyhouse import Store
from keyhouse.clock import SystemClock
from keyhouse.studio.sessions import COOKIE, cookie_name
from tests.studio.support.jobs import running_jobs
from tests.studio.support.library import SCHEMA, Library, fill, library
from tests.support.browser_pages import Pages, open_browser
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
                name = cookie_name(self.url)
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

    async def check(self, path: str) -> None:
        """Check the accessibility of a page in both themes, wide and narrow."""
        options = {"context": self.context, "allowed_errors": ("404",)}
        await self._visitor.browser.check(f"{self._visitor.url}{path}", context_options=options)


Scenario = Callable[[str, Store], Awaitable[None]]


class Studio:
    """Runs scenarios with an open browser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, visitor: Visitor) -> None:
        self._loop = loop
        self.visitor = visitor

    def run(self, name: str, scenario: Scenario, books: int = 3) -> None:
        """Run a scenario over a space with books, named by its test."""
        space = re.sub(r"\W+", "-", name)[:60]

        async def main() -> None:
            store = self.visitor.store(space)
            await fill(store, books)
            await scenario(f"/studio/library/{space}", store)

        self._loop.run_until_complete(main())


@contextmanager
def open_studio(engine: str, folder: Path) -> Iterator[Studio]:
    """Open a browser and the Studio over an engine."""
    loop = asyncio.new_event_loop()
    opened = _visitor(engine, folder)
    try:
        yield Studio(loop, loop.run_until_complete(anext(opened)))
    finally:
        loop.run_until_complete(opened.aclose())
        loop.close()


async def _visitor(engine: str, folder: Path) -> AsyncGenerator[Visitor, None]:
    opened = await ALL[engine](folder)(SystemClock())
    try:
        async with (
            library(folder, opened) as served,
            running_jobs(served),
            serving(served.app) as url,
            open_browser() as browser,
        ):
            yield Visitor(served, url, browser)
    finally:
        await opened.close()
