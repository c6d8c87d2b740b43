"""Screenshots of library pages for the docs: `python -m tools.audiobooks_screens [--all FOLDER]`.

`--all` writes every page to a folder instead, in both themes and at 1,280 and 320 px, to look at.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.async_api import Page

from keyhouse_audiobooks.files.generated_audio import write_audio
from tests.support import audiobook_pages
from tests.support.audiobook_pages import ServedLibrary, played_past, served_library
from tests.support.browser_pages import open_browser
from tools.page_screens import FOLDER, Screen, take_screens

HOME: Final = "/audiobooks/"
FILE_SECONDS: Final = 600.0
USER: Final = "admin"


async def listen(page: Page) -> None:
    await page.wait_for_selector("html[data-ready]")
    await page.locator(".book-head [data-play]").click()
    await played_past(page, 1)
    await page.locator("#player-play").click()
    await page.locator("#player-play[aria-label=Play]").wait_for()


async def open_player(page: Page) -> None:
    await listen(page)
    await page.get_by_role("button", name="More").click()
    await page.get_by_label("Sleep timer").select_option("End of the chapter")
    for _ in range(5):
        await page.get_by_role("button", name="Faster").click()


async def resume(page: Page) -> None:
    """Wait for the player with the last book."""
    await page.get_by_role("button", name="Play", exact=True).wait_for()
    await page.locator(".thumb").evaluate("image => image.decode()")


async def merge(page: Page) -> None:
    """Show a usual folder instead of a temporary one."""
    await resume(page)
    await page.evaluate(
        """() => {
          const field = document.getElementById("file");
          const hint = document.querySelector("label[for=file] span");
          const folder = hint.textContent.replace("below ", "");
          hint.textContent = "below /srv/books";
          field.value = field.value.replace(folder, "/srv/books");
        }"""
    )


def fill(library: ServedLibrary) -> None:
    """Give some books a place, a description and tags."""
    admin = library.admin
    for title, segment, seconds, text in (
        ("The Storm", 2, 312, "Two ships leave the harbour on the same night."),
        ("Short Stories", 0, 545, "Nine stories, each told in one breath."),
        (
            "The Lamp",
            1,
            95,
            "The keeper is gone, and the light still burns. Three evenings on a rock.",
        ),
    ):
        book = library.book(title)
        admin.patch(f"/books/{book}", json={"description": text, "tags": ["Sea", "Evening"]})
        place = {"segment_id": library.segments(book)[segment]["id"], "position_seconds": seconds}
        reply = admin.post(f"/books/{book}/position", json={**place, "event_type": "start"})
        assert reply.status_code == 200, reply.text
    admin.patch(f"/books/{library.book('A Walk')}/status", json={"status": "finished"})
    for name in ("lea", "tom"):
        client = library.listener(name)
        book = library.book("The Lamp")
        place = {"segment_id": library.segments(book)[2]["id"], "position_seconds": 140}
        client.post(f"/books/{book}/position", json=place)


def screens(library: ServedLibrary, merged: Path) -> list[Screen]:
    lamp = f"{HOME}books/{library.book('The Lamp')}"
    preview = f"{lamp}/merge?file_path={quote(str(merged), safe='')}"
    return [
        Screen("audiobooks-home", HOME, height=700, prepare=resume),
        Screen("audiobooks-player", lamp, is_dark=True, height=800, prepare=open_player),
        Screen("audiobooks-phone", lamp, width=390, height=780, prepare=listen),
        Screen("audiobooks-merge", preview, height=640, prepare=merge),
    ]


def every_page(library: ServedLibrary) -> list[Screen]:
    book = f"books/{library.book('The Lamp')}"
    steps = {"books": "books", "authors": "authors", "series": "series", "tags": "tags"}
    paths = {"home": "", **steps, "operations": "operations", "users": "users", "bin": "bin"}
    paths |= {"account": "account", "offline": "offline", "search": "search?q=lamp"}
    pages = [
        Screen(f"{name}-{theme}-{width}", f"{HOME}{path}", theme == "dark", width)
        for name, path in paths.items()
        for theme in ("light", "dark")
        for width in (1_280, 320)
    ]
    players = [
        Screen(f"{name}-{theme}-{width}", f"{HOME}{book}", theme == "dark", width, prepare=step)
        for name, step in (("book", listen), ("player", open_player))
        for theme in ("light", "dark")
        for width in (1_280, 320)
    ]
    return pages + players


async def main(arguments: list[str]) -> None:
    folder = Path(tempfile.mkdtemp())
    with served_library(folder, seconds=FILE_SECONDS) as library:
        merged = write_audio(library.root / "Ada Example" / "The Lamp.wav", 3 * FILE_SECONDS)
        fill(library)
        # The first picture has a player because the browser remembers its last book.
        url = library.url.removesuffix("/audiobooks")

        async def sign_in(page: Page) -> None:
            await audiobook_pages.sign_in(page, USER)
            await page.evaluate(
                "id => localStorage.setItem('audiobooks-book', id)", library.book("The Storm")
            )

        chosen = every_page(library) if arguments else screens(library, merged)
        to = Path(arguments[1]) if arguments else FOLDER
        to.mkdir(parents=True, exist_ok=True)
        async with open_browser() as browser:
            await take_screens(browser, url, chosen, start=HOME, sign_in=sign_in, folder=to)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
