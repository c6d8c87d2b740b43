"""The player of the audiobook library in a real browser: it plays real files."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route

from systems.audiobooks.tests.support.service import LibraryService
from tests.support import engine_openers
from tests.support.audiobook_pages import (
    ServedLibrary,
    moment,
    open_book,
    played_past,
    signed_in,
)
from tests.support.browser_pages import Pages, run_in_browser
from tests.support.polling import until

pytestmark = pytest.mark.browser

IS_PAUSED = "() => document.getElementById('audio').paused"
RECORD_VOLUME = """() => {
  const audio = document.getElementById("audio");
  window.quietest = audio.volume;
  audio.addEventListener("volumechange", () => {
    window.quietest = Math.min(window.quietest, audio.volume);
  });
}"""


async def pause(page: Page) -> float:
    """Pause the player, and return the moment: while it plays, the place moves."""
    await page.locator("#player-play").click()
    await page.wait_for_function(IS_PAUSED)
    return await moment(page)


async def seek(page: Page, to: float) -> None:
    """Go to a moment of the book by its slider, which is in the panel `More`."""
    await page.get_by_label("Position in the book").fill(str(to))


def events(client: httpx.Client, book: str) -> list[dict[str, Any]]:
    """Return the newest events of a listener, the newest first."""
    items: list[dict[str, Any]] = client.get(f"/books/{book}/events").json()["data"]["items"]
    return items


def test_a_listener_signs_in_finds_a_book_and_it_plays_while_browsing(
    library: ServedLibrary,
) -> None:
    library.listener("lea").close()

    async def scenario(browser: Pages) -> None:
        async with browser.visit(f"{library.url}/series", allowed_errors=("401",)) as page:
            await page.get_by_label("User name").fill("lea")
            await page.get_by_label("Password").fill("wrong")
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_text("The user name or the password is wrong.").wait_for()
            await page.get_by_label("Password").fill("correct horse")
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("link", name="The Lighthouse").click()
            await page.get_by_role("heading", name="The Lighthouse").wait_for()
            titles = await page.locator(".book .title").all_inner_texts()
            assert titles == ["The Lamp", "The Fog", "The Storm"]
            await page.keyboard.press("/")
            await page.keyboard.type("lamp")
            await page.keyboard.press("Enter")
            await page.get_by_text("1 book for “lamp”").wait_for()
            await page.get_by_role("link", name="The Lamp").click()
            await page.get_by_role("heading", name="The Lamp", exact=True).wait_for()
            await page.get_by_role("button", name="Play", exact=True).first.click()
            await played_past(page, 0.5)
            for name in ("Authors", "Books", "Home"):
                await page.get_by_role("link", name=name, exact=True).click()
                await (
                    page.get_by_role("link", name=name, exact=True)
                    .and_(page.locator("[aria-current=page]"))
                    .wait_for()
                )
            assert not await page.evaluate(IS_PAUSED)
            await page.go_back()
            await page.get_by_role("heading", name="Books").wait_for()
            assert not await page.evaluate(IS_PAUSED)
            async with page.expect_response("**/position"):
                await page.get_by_role("button", name="Pause").last.click()
            await page.get_by_role("link", name="Home", exact=True).click()
            await page.get_by_role("heading", name="Continue listening").wait_for()
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_label("User name").wait_for()

    run_in_browser(scenario)


def test_seek_speed_chapter_and_a_reload_keep_the_place(library: ServedLibrary) -> None:
    device = library.listener("sam")
    book = library.book("The Lamp")

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "sam") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Chapter 4").click()
            await played_past(page, 90.2)
            place = await pause(page)
            await page.get_by_role("button", name="Back 10 seconds").click()
            assert abs(await moment(page) - (place - 10)) < 0.5
            await page.get_by_role("button", name="Next chapter").click()
            chapter = 30 * int((place - 10) / 30 + 1)
            assert abs(await moment(page) - chapter) < 0.5
            await page.locator("#player-play").click()
            await page.get_by_role("button", name="More").click()
            for _ in range(2):
                await page.get_by_role("button", name="Faster").click()
            assert "left at 1.10×" in await page.locator(".extras .left").inner_text()
            await seek(page, 130)
            await played_past(page, 130.2)
            async with page.expect_response("**/position"):
                place = await pause(page)
            await page.reload()
            await page.get_by_role("button", name="Play", exact=True).last.wait_for()
            await played_past(page, place - 1)
            assert abs(await moment(page) - place) < 1
            assert await page.locator("#speed").input_value() == "1.1"
            await page.keyboard.press("ArrowLeft")
            await page.wait_for_function(
                "at => Number(document.getElementById('book-slider').value) < at", arg=place - 5
            )
            async with page.expect_response("**/position") as started:
                await page.keyboard.press("k")
            await (await started.value).finished()
            await played_past(page, await moment(page))
            await page.goto("about:blank")

            def newest() -> list[dict[str, Any]]:
                items = events(device, book)
                return items if items[0]["event_type"] == "pause" else []

            last, before, *_ = await until(newest)  # a page that is closed while it plays
            assert last["position_seconds"] > before["position_seconds"]

    run_in_browser(scenario)
    assert device.get("/preferences/speed:" + book).json()["data"] == 1.1
    assert library.state(device, book)["status"] == "in_progress"
    device.close()


def test_a_pause_at_the_very_end_of_a_file_is_not_undone_by_the_next_file(
    library: ServedLibrary,
) -> None:
    """The sleep timer paused a book while the end of its file was reported, and the next file
    played on for the night."""
    library.listener("eli").close()

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "eli") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Chapter 2").click()
            await pause(page)
            assert await page.evaluate(
                """() => {
                    const audio = document.getElementById("audio");
                    audio.dispatchEvent(new Event("ended"));
                    return audio.paused;
                }"""
            )

    run_in_browser(scenario)


def test_the_sleep_timer_pauses_at_the_end_of_a_chapter_and_after_minutes(
    library: ServedLibrary,
) -> None:
    library.listener("sue").close()

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "sue") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Chapter 2").click()
            await pause(page)
            await page.get_by_role("button", name="More").click()
            await page.get_by_label("Sleep timer").select_option("End of the chapter")
            await page.evaluate(RECORD_VOLUME)
            await seek(page, 59)
            await page.locator("#player-play").click()
            await page.get_by_text("The sleep timer has paused the book.").wait_for()
            assert await page.evaluate(IS_PAUSED)
            assert await page.evaluate("window.quietest") < 0.3
            assert await page.evaluate("document.getElementById('audio').volume") == 1
            assert 58.5 < await moment(page) < 62, "of chapter 2, which ends after 60 seconds"
            await page.get_by_role("button", name="5 more minutes").last.click()
            await page.wait_for_function("() => !document.getElementById('audio').paused")
            await page.get_by_text("Pauses in 4:5").wait_for()
            await page.evaluate("() => { const now = Date.now; Date.now = () => now() + 301_000; }")
            await page.get_by_text("The sleep timer has paused the book.").wait_for()
            await page.wait_for_function(IS_PAUSED)

    run_in_browser(scenario)


def test_the_end_of_a_book_offers_the_next_one_of_the_series(library: ServedLibrary) -> None:
    device = library.listener("nora")
    book = library.book("The Lamp")

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "nora") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Chapter 6").click()
            await played_past(page, 150.2)
            shown = await page.evaluate("navigator.mediaSession.metadata.title")
            assert shown == "Chapter 6"
            await page.keyboard.press("b")
            await page.get_by_text("Bookmark at 2:3").wait_for()
            await page.get_by_role("button", name="More").click()
            await seek(page, 1)
            await page.locator("#bookmarks").get_by_role("button", name="Chapter 6").click()
            assert await moment(page) >= 150
            await seek(page, 179.5)
            await page.get_by_text("Next in the series: The Fog.").wait_for()
            assert await page.get_by_role("button", name="Play The Fog").is_visible()
            await page.get_by_label("Play the next book of a series at the end").check()
            await seek(page, 179.5)
            await page.locator("#player-play").click()
            await page.get_by_role("heading", name="The Fog").wait_for()

    run_in_browser(scenario)
    assert library.state(device, book)["status"] == "finished"
    device.close()


def test_the_book_that_was_asked_for_last_is_played_however_slow_another_loads(
    library: ServedLibrary,
) -> None:
    library.listener("zoe").close()
    slow = library.book("The Storm")

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "zoe", service_workers="block") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            other_plays = asyncio.Event()

            async def delay(route: Route) -> None:
                await other_plays.wait()
                await route.continue_()

            async with page.expect_request(f"**/books/{slow}") as asked:
                await page.evaluate("id => localStorage.setItem('audiobooks-book', id)", slow)
                await page.route(f"**/api/v1/books/{slow}", delay)
                await open_book(page, library, "The Lamp")
                await page.get_by_role("button", name="Chapter 2").click()
            await played_past(page, 30.2)
            other_plays.set()
            await (await asked.value).response()
            await played_past(page, await moment(page))
            assert await page.locator("#player-link strong").inner_text() == "The Lamp"

    run_in_browser(scenario)


def test_two_devices_are_asked_where_to_continue(library: ServedLibrary) -> None:
    phone = library.listener("tom")
    book = library.book("The Lamp")
    last = library.segments(book)[2]["id"]

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "tom") as context,
            browser.visit(f"{library.url}/", context=context, allowed_errors=("409",)) as page,
        ):
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Play", exact=True).first.click()
            await played_past(page, 0.5)
            await page.get_by_role("button", name="Pause").last.click()
            for answer, place in (("Stay at", 1), ("Continue at 2:03", 123)):
                body = {"segment_id": last, "position_seconds": 3, "event_type": "progress"}
                assert phone.post(f"/books/{book}/position", json=body).status_code == 200
                await page.locator("#player-play").click()
                question = page.get_by_role("group", name="Two places")
                await question.wait_for()
                assert "Another device is at 2:03" in await question.inner_text()
                await page.get_by_role("button", name=answer).click()
                await question.wait_for(state="hidden")
                await page.get_by_role("button", name="Pause").last.click()
                await page.locator("#player-play[aria-label=Play]").wait_for()
                assert abs(await moment(page) - place) < 20
            # a page that was closed first, on a busy machine, sent nothing
            await until(lambda: library.state(phone, book)["last_segment_id"] == last)

    run_in_browser(scenario)
    phone.close()


def test_an_expired_session_leads_to_the_login_and_back(library: ServedLibrary) -> None:
    library.listener("eva").close()

    async def scenario(browser: Pages) -> None:
        context = await browser.context()
        url = f"{library.url}/books?sort=author&order=asc"
        await context.add_cookies(
            [
                {
                    "name": "session_id",
                    "value": f"{'0' * 26}.{'x' * 43}",
                    "domain": "127.0.0.1",
                    "path": "/audiobooks",
                }
            ]
        )
        async with browser.visit(url, context=context) as page:
            await page.get_by_label("User name").fill("eva")
            await page.get_by_label("Password").fill("correct horse")
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("heading", name="Books").wait_for()
            assert page.url == url
        await context.close()

    run_in_browser(scenario)


def test_the_first_user_is_set_up(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service:
        url = service.url.removesuffix("/api/v1")

        async def scenario(browser: Pages) -> None:
            async with browser.visit(f"{url}/") as page:
                await page.get_by_label("User name").fill("ann")
                await page.get_by_label("Password").fill("correct horse")
                await page.get_by_role("button", name="Create the admin").click()
                await page.get_by_role("heading", name="Operations").wait_for()
                await page.get_by_role("link", name="Home").click()
                await page.get_by_text("The library is empty").wait_for()
                await page.get_by_role("button", name="Sign out").click()
                await page.get_by_label("User name").fill("ann")
                await page.get_by_label("Password").fill("correct horse")
                await page.get_by_role("button", name="Sign in").click()
                await page.get_by_text("The library is empty").wait_for()

        run_in_browser(scenario)
        with service.client() as guest:
            assert guest.get("/auth/status").json()["data"]["bootstrap_ready"] is False


def test_a_file_that_cannot_be_played_is_reported_when_it_is_asked_for(
    library: ServedLibrary,
) -> None:
    """The message was the browser's own, came back with every page, and stayed for other books."""
    library.listener("max").close()

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "max") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            message = page.locator("#player-message")
            await open_book(page, library, "The Fog")  # an m4b without frames
            await page.locator("main [data-play]").first.click()
            await page.get_by_text("This browser cannot play m4b files").wait_for()
            await open_book(page, library, "The Lamp")
            await page.locator("#player").get_by_text("The Fog").last.wait_for()
            assert not await message.is_visible(), "nobody has asked to play it"
            await page.locator("#player-play").click()
            await page.get_by_text("This browser cannot play m4b files").wait_for()
            await page.locator("main [data-play]").first.click()
            await played_past(page, 0.3)
            assert not await message.is_visible(), "another book plays"

    run_in_browser(scenario)


def test_books_of_every_generated_format_with_sound_are_played(library: ServedLibrary) -> None:
    """The files of flac and opus had no frames: a book was finished as soon as it was played."""
    library.listener("mia").close()

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "mia") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            for title in ("The Lamp", "The Storm", "A Walk: Notes", "Poems"):
                await open_book(page, library, title)
                await page.locator("main [data-play]").first.click()
                await played_past(page, 0.5)
                assert await moment(page) < 50, title

    run_in_browser(scenario)
