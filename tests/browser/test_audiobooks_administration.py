"""The pages for those who run the audiobook library, in a real browser; every page under axe."""

import asyncio
import threading
from typing import Any

import pytest

from keyhouse.engine import Batch, Engine
from keyhouse_audiobooks.files.generated_audio import write_audio
from tests.support.audiobook_pages import ServedLibrary, open_book, signed_in
from tests.support.browser_pages import Pages, check_page, check_themes, run_in_browser

pytestmark = pytest.mark.browser


PAGES = (
    "",
    "books",
    "books?status=finished",
    "authors",
    "series",
    "tags",
    "playlists",
    "search?q=lamp",
    "operations",
    "users",
    "bin",
    "account",
    "offline",
    "books/none",
)


def test_a_scan_shows_its_log_live_and_a_merge_its_preview(library: ServedLibrary) -> None:
    listener = library.listener("lars")
    book = library.book("The Storm")
    second = library.segments(book)[1]["id"]
    body = {"segment_id": second, "position_seconds": 3.5, "event_type": "start"}
    assert listener.post(f"/books/{book}/position", json=body).status_code == 200
    whole = sum(each["duration_seconds"] for each in library.segments(book))
    write_audio(library.root / "whole.mp3", whole, tags={"album": "Whole", "author": "Ada Example"})

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "admin") as context,
            browser.visit(f"{library.url}/operations", context=context) as page,
        ):
            await page.get_by_role("button", name="Scan").click()
            await page.get_by_role("heading", name="Scan", exact=True).wait_for()
            log = page.get_by_role("region", name="Log")
            await log.get_by_text("broken.mp3").wait_for()
            await page.get_by_text("completed").wait_for()
            await page.get_by_role("button", name="Delete from the list").wait_for()
            await page.get_by_role("link", name="Operations").first.click()
            await page.get_by_label("Pattern").wait_for()
            await page.get_by_role("button", name="Organize").click()
            await page.get_by_role("heading", name="Organize", level=1).wait_for()
            await page.get_by_text("completed").wait_for()
            await open_book(page, library, "The Storm")
            await page.get_by_role("link", name="Merge or convert the files").click()
            await page.get_by_label("File").fill(str(library.root / "Ada Example"))
            await page.get_by_role("button", name="Preview").click()
            await page.get_by_role("alert").wait_for()
            await page.get_by_label("File").fill(str(library.root / "whole.mp3"))
            await page.get_by_role("button", name="Preview").click()
            places = page.get_by_role("region", name="Places")
            await places.wait_for()
            text = await places.inner_text()
            for words in ("lars", "file 2 at 0:03", "1:03 of the new file"):
                assert words in text
            await check_page(page, "the preview")
            await page.get_by_role("button", name="Merge", exact=True).click()
            await page.get_by_role("heading", name="Merge", exact=True).wait_for()
            await page.get_by_text("completed").wait_for()

    run_in_browser(scenario)
    assert len(library.segments(book)) == 1
    assert abs(library.state(listener, book)["position_seconds"] - 63.5) < 0.5
    listener.close()


def test_a_running_operation_is_followed_and_cancelled(
    library: ServedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def same(engine: Engine) -> Any:
        return engine

    engine = library.service.on_engine(same)
    commit, is_cancelled = engine.commit, threading.Event()

    async def held(space: str, batch: Batch) -> int | None:
        """Hold the books of the scan until it is cancelled."""
        if any(put.key.startswith("b:") for put in batch.puts):
            await asyncio.to_thread(is_cancelled.wait)
        result: int | None = await commit(space, batch)
        return result

    for number in range(5):
        folder = library.root / "many" / f"{number}"
        write_audio(folder / "1.wav", 1, tags={"album": f"Many {number}", "author": "Mo"})

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "admin") as context,
            browser.visit(f"{library.url}/operations", context=context) as page,
        ):
            monkeypatch.setattr(engine, "commit", held)
            await page.get_by_role("button", name="Scan").click()
            async with page.expect_response("**/cancel"):
                await page.get_by_role("button", name="Cancel").click()
            is_cancelled.set()
            await page.get_by_text("cancelled").first.wait_for()

    try:
        run_in_browser(scenario)
    finally:
        is_cancelled.set()


def test_users_the_bin_and_api_keys_are_managed(library: ServedLibrary) -> None:
    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "admin") as context,
            browser.visit(f"{library.url}/users", context=context, allowed_errors=("409",)) as page,
        ):
            await page.get_by_label("User name").fill("nina")
            await page.get_by_label("Password").fill("correct horse")
            await page.get_by_role("button", name="Create").click()
            await page.get_by_label("Role of nina").select_option("editor")
            await page.get_by_role("button", name="Save nina").click()
            await page.locator("li:has-text('nina') option[selected]:text('editor')").wait_for(
                state="attached"
            )
            await page.get_by_label("Status of admin").select_option("disabled")
            await page.get_by_role("button", name="Save admin").click()
            await page.get_by_text("This is the last admin").wait_for()
            await open_book(page, library, "Poems")
            await page.get_by_label("Yes, put it into the bin").check()
            await page.get_by_role("button", name="Delete").click()
            await page.get_by_role("heading", name="Books").wait_for()
            await page.goto(f"{library.url}/bin")
            await page.get_by_role("button", name="Restore Poems").click()
            await page.get_by_text("The bin is empty.").wait_for()
            await page.goto(f"{library.url}/account")
            await page.get_by_label("Name of a new key").fill("backup")
            await page.get_by_role("button", name="Create a key").click()
            await page.get_by_text("It is shown once").wait_for()
            key = await page.locator(".notice code").inner_text()
            with library.service.client(key) as program:
                assert program.get("/auth/me").status_code == 200
                await page.get_by_role("button", name="Delete the API key backup").click()
                await page.get_by_role("button", name="Delete the API key backup").wait_for(
                    state="detached"
                )
                assert program.get("/auth/me").status_code == 401

    run_in_browser(scenario)
    with library.service.signed_in("nina") as nina:
        assert nina.get("/auth/me").json()["data"]["roles"] == ["editor"]


def test_a_book_is_edited_and_put_into_playlists(library: ServedLibrary) -> None:
    library.listener("edda", "editor").close()
    book = library.book("A Walk")

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "edda") as context,
            browser.visit(f"{library.url}/", context=context, allowed_errors=("422",)) as page,
        ):
            await open_book(page, library, "A Walk")
            await page.get_by_role("link", name="Edit").click()
            await page.get_by_label("Author").fill("Bea Walker")
            await page.get_by_label("Tags").fill("Nature\nSlow, quiet")
            await page.get_by_label("ISBN-13").fill("9780060512751")
            await page.get_by_role("button", name="Save").click()
            await page.get_by_role("alert").wait_for()
            await check_page(page, "an invalid form")
            await page.get_by_label("ISBN-13").fill("978-0-06-051275-0")
            await page.get_by_role("button", name="Save").click()
            await page.get_by_role("link", name="Slow, quiet").wait_for()
            await page.get_by_role("link", name="Bea Walker").wait_for()
            await page.get_by_text("New playlist with this book").click()
            await page.get_by_label("Name", exact=True).fill("Evenings")
            await page.get_by_role("button", name="Create").click()
            await page.get_by_role("heading", name="Evenings").wait_for()
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Add", exact=True).click()
            await page.get_by_role("button", name="Move The Lamp up").press("Enter")
            await page.locator(".playlist li").first.get_by_text("The Lamp").wait_for()
            await page.get_by_role("button", name="Play The Lamp").click()
            await page.get_by_role("button", name="Pause").last.wait_for()
            await page.get_by_role("button", name="Remove A Walk").click()
            await page.get_by_role("button", name="Remove A Walk").wait_for(state="detached")
            await page.get_by_label("Yes, delete it").check()
            await page.get_by_role("button", name="Delete").click()
            await page.get_by_text("You have no playlist yet").wait_for()

    run_in_browser(scenario)
    changed = library.admin.get(f"/books/{book}").json()["data"]
    assert (changed["author_name"], changed["tags"]) == ("Bea Walker", ["Nature", "Slow, quiet"])
    assert changed["isbn13"] == "9780060512750"


@pytest.mark.soak
def test_every_page_is_accessible_in_every_theme_and_width(library: ServedLibrary) -> None:
    async def scenario(browser: Pages) -> None:
        async with browser.visit(f"{library.url}/login") as page:
            await check_themes(page)
        async with (
            signed_in(library, browser, "admin") as context,
            browser.visit(f"{library.url}/", context=context, allowed_errors=("400",)) as page,
        ):
            book = library.book("The Lamp")
            body = {"name": "For axe", "book_ids": [book]}
            playlist = library.admin.post("/playlists", json=body).json()["data"]["id"]
            for path in (*PAGES, f"playlists/{playlist}", f"books/{book}/edit"):
                await page.goto(f"{library.url}/{path}")
                await check_themes(page)
            await open_book(page, library, "The Lamp")
            await page.locator(".book-head [data-play]").click()
            await page.get_by_role("button", name="More").click()
            await page.get_by_role("button", name="Add a bookmark here").click()
            await page.get_by_role("button", name="Delete the bookmark").first.wait_for()
            await page.get_by_label("Sleep timer").select_option("15 minutes")
            await check_themes(page)

    run_in_browser(scenario)
