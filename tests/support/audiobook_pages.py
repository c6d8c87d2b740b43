"""A served audiobook library with generated audio, and listeners in browsers that are signed in."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import BrowserContext, Page

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Engine
from keyhouse_audiobooks.files.demo import write_demo
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from tests.support import engine_openers
from tests.support.browser_pages import Pages
from tests.support.polling import wait_until


class ServedLibrary:
    """`admin` is a client of the API; `url` is where the pages are."""

    def __init__(self, service: LibraryService, root: Path, admin: httpx.Client) -> None:
        self.service = service
        self.root = root
        self.admin = admin
        self.url = service.url.removesuffix("/api/v1")

    def scan(self) -> None:
        reply = self.admin.post("/operations/scan", json={})
        assert reply.status_code in (200, 202), reply.text
        self.wait(reply.json()["data"]["id"])

    def wait(self, id: str) -> None:
        """Wait until an operation has ended."""
        path = f"/operations/{id}"
        wait_until(lambda: self.admin.get(path).json()["data"]["status"] == "completed")

    def book(self, title: str) -> str:
        """Return the id of a book."""
        found = self.admin.get("/books", params={"title_prefix": title}).json()["data"]["items"]
        return str(found[0]["id"])

    def state(self, client: httpx.Client, book: str) -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"/books/{book}/state").json()["data"]
        return found

    def segments(self, book: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin.get(f"/books/{book}/segments").json()["data"][
            "items"
        ]
        return found

    def listener(self, name: str, role: str = "viewer") -> httpx.Client:
        """Return a client of a new user: another device than the user's browser."""
        return self.service.user(self.admin, name, role)


@contextmanager
def served_library(
    folder: Path, *, seconds: float = 8.0, root_path: str = ""
) -> Iterator[ServedLibrary]:
    """Serve a demo library whose files have this length, below a path."""
    root = folder / "books"
    write_demo(root, seconds=seconds)
    opener = engine_openers.ALL["sqlite"](folder)

    def open_now(clock: Clock, *, changes_kept: int = 1_000) -> Awaitable[Engine]:
        """Open the engine with the real time, by which the browser's listening is counted."""
        return opener(SystemClock(), changes_kept=changes_kept)

    with (
        LibraryService(open_now, folder / "data", roots=[root], root_path=root_path) as service,
        service.admin() as admin,
    ):
        library = ServedLibrary(service, root, admin)
        library.scan()
        yield library


@asynccontextmanager
async def signed_in(
    library: ServedLibrary, browser: Pages, name: str, **options: Any
) -> AsyncIterator[BrowserContext]:
    """Yield the browser of a user."""
    context = await browser.context(**options)
    try:
        async with browser.visit(f"{library.url}/", context=context) as page:
            await sign_in(page, name)
        yield context
    finally:
        await context.close()


async def sign_in(page: Page, name: str) -> None:
    await page.get_by_label("User name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", name="New in the library").wait_for()


async def open_book(page: Page, library: ServedLibrary, title: str) -> None:
    """Open the page of a book, with the player ready."""
    await page.goto(f"{library.url}/books/{library.book(title)}")
    await page.wait_for_selector("html[data-ready]")


async def moment(page: Page) -> float:
    """Return the moment of the book that the player shows, in seconds."""
    return float(await page.evaluate("Number(document.getElementById('book-slider').value)"))


async def played_past(page: Page, seconds: float) -> None:
    await page.wait_for_function(
        "past => Number(document.getElementById('book-slider').value) > past", arg=seconds
    )
