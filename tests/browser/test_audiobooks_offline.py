"""The audiobook library without a network: kept books, and places that are sent later."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page

from keyhouse_audiobooks.listening.playback import SEEK_SLACK_SECONDS
from tests.support.audiobook_pages import (
    ServedLibrary,
    moment,
    open_book,
    played_past,
    served_library,
    signed_in,
)
from tests.support.browser_pages import Pages, check_page, run_in_browser
from tests.support.polling import until

pytestmark = pytest.mark.browser

HEARD_SECONDS = SEEK_SLACK_SECONDS + 1.5
"""More than is counted without regard to the time that has passed."""

LATER = "const now = Date.now; Date.now = () => now() + 6_000;"
"""Moves the clock of pages by more than the slack of a late report."""

PAUSED = re.compile(r"(?:[3-9]|\d\d) events wait on this device, and will be sent")
"""The start, a place and the pause: a page that is reloaded before has not kept the last one."""

OFFLINE = ("ERR_INTERNET_DISCONNECTED", "Failed to load resource", "ERR_FAILED")


async def follow_link(page: Page, title: str) -> None:
    """Open the page of a book from another page, with the player ready: a click before is lost."""
    await page.get_by_role("link", name=title).first.click()
    await page.get_by_role("heading", name=title, exact=True).wait_for()
    await page.wait_for_selector("html[data-ready]")


async def controlled(page: Page) -> None:
    """Wait until the service worker serves the page."""
    await page.wait_for_function("() => navigator.serviceWorker.controller !== null")


def test_a_kept_book_plays_offline_and_its_place_is_sent_when_the_network_is_back(
    library: ServedLibrary,
) -> None:
    device = library.listener("olga")
    book = library.book("The Lamp")
    assert device.put(f"/preferences/speed:{book}", json=3).status_code == 200
    heard: list[float] = []

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "olga") as context,
            browser.visit(f"{library.url}/", context=context, allowed_errors=OFFLINE) as page,
        ):
            await open_book(page, library, "The Lamp")
            await controlled(page)
            await page.get_by_role("button", name="Keep on this device").click()
            await page.get_by_text("Kept on this device: 3 MB.").wait_for()
            await context.set_offline(True)
            await page.goto(f"{library.url}/authors")
            await page.get_by_role("heading", name="Kept on this device").wait_for()
            await page.get_by_text("Offline", exact=True).wait_for()
            await check_page(page, "offline")
            await follow_link(page, "The Lamp")
            await page.get_by_role("button", name="Chapter 3").click()
            await played_past(page, 60 + HEARD_SECONDS)
            await page.get_by_role("button", name="Pause").last.click()
            await page.get_by_text(PAUSED).wait_for()
            place = await moment(page)
            heard.append(place)
            await context.add_init_script(LATER)
            await page.reload()
            await played_past(page, place - 1)
            assert abs(await moment(page) - place) < 1
            assert library.state(device, book)["status"] == "unstarted"
            await context.set_offline(False)
            await page.get_by_text("on this device, and will be sent").wait_for(state="hidden")
            await until(
                lambda: abs(library.state(device, book)["position_seconds"] - (place - 60)) < 1
            )
            await open_book(page, library, "The Lamp")
            await page.get_by_role("button", name="Remove from this device").click()
            await page.get_by_text("Removed from this device.").wait_for()
            assert (
                await page.evaluate(
                    "() => caches.open('audiobooks-kept-1').then(cache => cache.keys())"
                )
                == []
            )

    run_in_browser(scenario)
    listened = device.get("/stats/me").json()["data"]
    assert listened["plays"] == 1
    assert abs(listened["listen_seconds"] - (heard[0] - 60)) <= 1, "each second without a network"
    events = device.get(f"/books/{book}/events").json()["data"]["items"]
    kinds = [each["event_type"] for each in events]
    assert kinds[0] == "pause" and "start" in kinds, "the newest event first"
    device.close()


def test_a_book_that_does_not_fit_is_rejected_with_the_sizes_and_the_app_is_installable(
    library: ServedLibrary,
) -> None:
    library.listener("rita").close()

    async def scenario(browser: Pages) -> None:
        async with (
            signed_in(library, browser, "rita") as context,
            browser.visit(f"{library.url}/", context=context) as page,
        ):
            await open_book(page, library, "The Lamp")
            await controlled(page)
            await page.evaluate(
                "() => { navigator.storage.estimate = async () => ({ quota: 1e5, usage: 9e4 }); }"
            )
            await page.get_by_role("button", name="Keep on this device").click()
            await page.get_by_text("There is not enough space: the book has 3 MB").wait_for()
            session = await context.new_cdp_session(page)
            found = await session.send("Page.getAppManifest")
            assert found["errors"] == [] and '"standalone"' in found["data"]
            problems = await session.send("Page.getInstallabilityErrors")
            ids = [each["errorId"] for each in problems["installabilityErrors"]]
            assert ids in ([], ["in-incognito"]), ids

    run_in_browser(scenario)


def test_the_player_and_kept_books_work_below_the_path_of_a_proxy(tmp_path: Path) -> None:
    with served_library(tmp_path, seconds=60, root_path="/family") as library:
        device = library.listener("pia")
        book = library.book("The Lamp")

        async def scenario(browser: Pages) -> None:
            async with (
                signed_in(library, browser, "pia") as context,
                browser.visit(f"{library.url}/", context=context, allowed_errors=OFFLINE) as page,
            ):
                await open_book(page, library, "The Lamp")
                await controlled(page)
                await page.get_by_role("button", name="Keep on this device").click()
                await page.get_by_text("Kept on this device: 3 MB.").wait_for()
                await context.set_offline(True)
                await page.goto(f"{library.url}/authors")
                await follow_link(page, "The Lamp")
                await page.get_by_role("button", name="Chapter 2").click()
                await played_past(page, 30.5)
                await page.get_by_role("button", name="Pause").last.click()
                await context.set_offline(False)
                await page.get_by_text("on this device, and will be sent").wait_for(state="hidden")
                await page.goto(f"{library.url}/")
                await page.get_by_role("heading", name="Continue listening").wait_for()

        run_in_browser(scenario)
        assert library.state(device, book)["status"] == "in_progress"
        device.close()
