"""Screenshots of the Studio for the docs: `python -m tools.studio_screens`."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.service.served_engine import ServedEngine
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import BOOK, SHELF, Book, Library, Shelf, library, send, token
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
    Screen("studio-journal", "/studio/journal"),
    Screen("studio-systems", "/studio/"),
    Screen("studio-tree", f"{MAIN}/tree?at=by-author:", is_dark=True),
    Screen("studio-table", f"{MAIN}/book?q=author%3Dlem"),
    Screen("studio-space", f"{MAIN}/", height=620),
    Screen("studio-key", f"{MAIN}/key?k=book:b000"),
    Screen("studio-edit", f"{MAIN}/edit?k=book:b000", prepare=preview),
    Screen("studio-schema", "/studio/library/schema", is_dark=True),
    Screen("studio-bulk", f"{MAIN}/bulk?record=book&q=author%3Dlem"),
    Screen("studio-upkeep", f"{MAIN}/verify"),
    Screen("studio-jobs", "/studio/jobs", is_dark=True),
    Screen("studio-slow", "/studio/slow", is_dark=True),
)


async def sign_in(page: Page) -> None:
    await page.get_by_label("Operator's token").fill(token())
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", name="Systems").wait_for()


BOOKS: Final = (
    ("Solaris", "lem", 204, "sf"),
    ("The Cyberiad", "lem", 295, "stories"),
    ("The Dispossessed", "le-guin", 387, "sf"),
    ("A Wizard of Earthsea", "le-guin", 205, "fantasy"),
    ("Roadside Picnic", "strugatsky", 145, "sf"),
    ("The Invincible", "lem", 183, "sf"),
    ("Kindred", "butler", 264, "sf"),
    ("His Master's Voice", "lem", 199, "sf"),
    ("The Lathe of Heaven", "le-guin", 184, "sf"),
    ("Parable of the Sower", "butler", 345, "sf"),
    ("Fiasco", "lem", 336, "sf"),
    ("The Left Hand of Darkness", "le-guin", 286, "sf"),
)


async def shelve(served: Library) -> None:
    """Put books on the shelves, and do something that the journal and the jobs show."""
    for number, (title, author, pages, tag) in enumerate(BOOKS):
        book = Book(f"b{number:03d}", title, author, pages, 8.5, [tag], "a friend")
        await served.store.put(BOOK, book)
    await served.store.put(SHELF, Shelf("hall", 3))
    async with served.signed_in(unlocked=True) as client:
        path = f"{MAIN}/book?q=author%3Dlem"
        view = {"action": "save", "name": "Books by Lem", "path": path}
        await client.post("/studio/views", data=view)
        form = {"record": "book", "q": "author=butler", "count": "2"}
        job = await ended(client, await send(client, f"{MAIN}/bulk", form))
        await ended(
            client, await send(client, "/studio/job", {"id": job["job"]["id"], "action": "undo"})
        )
        await ended(client, await client.post(f"{MAIN}/verify", data={"action": "verify"}))


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    engine = ServedEngine(SqliteEngine.open(folder / "library.db"))
    async with library(folder, engine, url="sqlite:library.db") as served, running_jobs(served):
        await shelve(served)
        async with serving(served.app) as url, open_browser() as browser:
            await take_screens(browser, url, SCREENS, start="/studio/", sign_in=sign_in)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
