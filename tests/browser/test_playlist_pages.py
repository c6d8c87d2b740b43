"""The playlist pages in a real browser, with the demonstration's channel."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import SESSION
from systems.playlist.tests.support.demo import demo_channel
from systems.playlist.tests.support.service import PlaylistService, item
from tests.support.browser_pages import Pages, check_page, check_themes, run_in_browser
from tests.support.page_server import serving

pytestmark = pytest.mark.browser

expect.set_options(timeout=45_000)  # as other waits: its own default is 5 seconds

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
Scenario = Callable[["Visit"], Awaitable[None]]


class Visit:
    """A running demonstration and a browser."""

    def __init__(
        self, service: PlaylistService, robot: DemoRobot, url: str, browser: Pages
    ) -> None:
        self.service = service
        self.robot = robot
        self.url = url
        self.browser = browser

    @asynccontextmanager
    async def page(
        self, path: str = "", *, context: BrowserContext | None = None, **options: Any
    ) -> AsyncIterator[Page]:
        async with self.browser.visit(
            f"{self.url}/playlist/{path}", context=context, **options
        ) as page:
            yield page

    async def signed_in(self, name: str, **options: Any) -> BrowserContext:
        """Return the browser of a member."""
        context = await self.browser.context(**options)
        async with self.page(context=context) as page:
            await self.sign_in(page, name)
        return context

    async def sign_in(self, page: Page, name: str) -> None:
        await page.get_by_label("Name in the channel").fill(name)
        await page.get_by_role("button", name="Send me a code").click()
        await page.get_by_label("Code").fill(self.service.codes[name])
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Catalog").wait_for()


def run(folder: Path, scenario: Scenario, **settings: Any) -> None:
    async def main(browser: Pages) -> None:
        more = [item("hostile", HOSTILE, "<b>Odd</b>")]
        async with (
            demo_channel(folder, more=more, **settings) as (service, robot),
            serving(service.app) as url,
        ):
            await scenario(Visit(service, robot, url, browser))

    run_in_browser(main)


async def press_until(page: Page, key: str, name: str) -> None:
    """Press a key until the element with this accessible name has the focus."""
    for _ in range(120):
        await page.keyboard.press(key)
        label = await page.evaluate(
            "const e = document.activeElement;"
            "e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText)"
            " || e.innerText || ''"
        )
        if " ".join(str(label).split()).startswith(name):
            return
    raise AssertionError(f"{key} does not lead to {name!r}")


async def check_list_and_menu(visit: Visit, width: int) -> None:
    context = await visit.signed_in("Bob", width=width)
    async with visit.page(context=context) as page:
        await page.locator(".now-title").wait_for()
        lines = await page.locator(".now-title").evaluate(
            "e => { const s = getComputedStyle(e);"
            " return (e.clientHeight - parseFloat(s.paddingTop)) / parseFloat(s.lineHeight) }"
        )
        if width < 640:
            assert lines == round(lines) == 2
        menu = page.locator(".top nav")
        is_wider = await menu.evaluate("e => e.scrollWidth > e.clientWidth")
        assert is_wider == (width < 640)
        shades = await menu.evaluate("e => getComputedStyle(e).backgroundAttachment")
        assert ("scroll" in shades and "local" in shades) == is_wider
        await page.get_by_role("button", name="Add Café de la Lune").click()
        toast, inline = page.locator("#toast"), page.locator("#list .said[data-last]")
        await expect(toast).to_contain_text("Added")
        is_inline = await inline.is_visible()
        assert is_inline == (width > 640)
        box = await toast.bounding_box()
        assert box is not None and (box["width"] > 100) == (not is_inline)


def test_nothing_is_cut_and_nothing_is_said_twice(tmp_path: Path) -> None:
    """The third line of the playing title was cut through its letters, the last tab of the menu was
    cut without a sign that it scrolls, and toast and list said the same."""

    async def scenario(visit: Visit) -> None:
        title = (
            "The very long title of what is playing now, which needs more lines than a phone has"
        )
        await visit.robot.play_media("https://media.example/long.json", title, 600)
        for width in (320, 390, 1_280):
            await check_list_and_menu(visit, width)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("width", "dark"), [(320, True), pytest.param(1_280, False, marks=pytest.mark.extra)]
)
def test_a_member_tells_the_whole_story_with_the_keyboard_alone(
    tmp_path: Path, width: int, dark: bool
) -> None:
    async def scenario(visit: Visit) -> None:
        context = await visit.browser.context(width=width, dark=dark)
        async with visit.page(context=context) as page:
            keys = page.keyboard
            # Log in.
            await expect(page.get_by_label("Name in the channel")).to_be_focused()
            await keys.type("Bob")
            await keys.press("Enter")
            await expect(page.get_by_label("Code")).to_be_focused()
            await keys.type(visit.service.codes["Bob"].lower())
            await keys.press("Enter")
            await page.get_by_role("heading", name="Catalog").wait_for()
            # Search, once the scripts are there.
            await page.wait_for_load_state()
            await keys.press("/")
            await keys.type("orbit nine s01")
            await page.get_by_text("6 titles").wait_for()
            # Build: three titles, one of them twice, the last one moved to the top.
            for title in ("S01E01", "S01E02", "S01E03"):
                await press_until(page, "Tab", f"Add Orbit Nine {title}")
                await keys.press("Enter")
                await (
                    page.get_by_role("status")
                    .filter(has_text=f"Added Orbit Nine {title}.")
                    .wait_for()
                )
            await keys.press("Enter")
            await page.locator("#list .duplicate").wait_for(state="attached")
            if width == 320:
                await press_until(page, "Shift+Tab", "My list")
                await keys.press("Enter")
            await press_until(page, "Tab", "Remove duplicates")
            await keys.press("Enter")
            await expect(page.locator("#list .total")).to_have_text("3 items, 1 h 9 min")
            await press_until(page, "Tab", "Move Orbit Nine S01E03: arrow")
            await keys.press("ArrowUp")
            await keys.press("ArrowUp")
            await expect(page.locator("#list .items > li").first).to_contain_text("S01E03")
            await page.get_by_role("status").filter(has_text="is now 1 of 3").wait_for()
            assert await page.evaluate("document.activeElement.id") == "grip-series3-03.1"
            await press_until(page, "Tab", "Remove Orbit Nine S01E03")
            await keys.press("Enter")
            await expect(page.locator("#list .items > li")).to_have_count(2)
            await press_until(page, "Shift+Tab", "Undo")
            await keys.press("Enter")
            await expect(page.locator("#list .items > li").first).to_contain_text("S01E03")
            # Make a marathon of two playlists, and save it.
            await press_until(page, "Shift+Tab", "Marathon")
            await keys.press("Enter")
            await page.get_by_role("heading", name="Marathon").wait_for()
            for label, letter in (("A", "n"), ("B", "f")):  # New playlist, Films for a long night
                await press_until(page, "Tab", f"Playlist {label}")
                await keys.press(letter)
                await page.locator(f"#source-{'B' if label == 'A' else 'C'}").wait_for()
            await press_until(page, "Tab", "One after the other")
            await keys.press("ArrowUp")
            await page.locator("#pattern").wait_for()
            await press_until(page, "Tab", "Pattern")
            await keys.type("a2 b")
            await keys.press("Tab")  # Enter would send two requests: for the change and the form
            await expect(page.locator(".preview .letter")).to_have_text([*"AABABBBBBBB"])
            await expect(page.locator(".htmx-request")).to_have_count(0)
            await press_until(page, "Tab", "Save as")
            await keys.type("Long night")
            await keys.press("Enter")
            await page.get_by_role("heading", name="Long night").wait_for()
            # Push it, and cancel.
            await press_until(page, "Tab", "Push")
            await press_until(page, "Tab", "Push")
            await keys.press("Enter")
            await page.get_by_text(re.compile("Pushing to the channel: [2-9] of 11")).wait_for()
            await press_until(page, "Shift+Tab", "Cancel the push")
            await keys.press("Enter")
            await page.get_by_text("Cancelled: ").wait_for()
            # Like what is playing.
            await visit.robot.play()
            await press_until(page, "Shift+Tab", "Like Revenge of the Lawn Gnomes")
            await keys.press("Enter")
            await expect(page.locator("#now [data-likes]")).to_have_text("1")
            assert await page.evaluate("document.activeElement.id") == "like"

    run(tmp_path, scenario, queue_interval_seconds=1.5)


@pytest.mark.soak
def test_every_page_is_accessible_in_every_theme_and_width(tmp_path: Path) -> None:
    async def scenario(visit: Visit) -> None:
        await visit.robot.play()
        context = await visit.signed_in("Ada")
        async with visit.page("?q=onerror", context=context) as page:
            add = page.get_by_role("button", name="Add")
            await add.click()
            await add.click()  # before the first one is answered
            await page.locator("#list .duplicate").wait_for()
            await page.get_by_role("button", name="Like").click()
        async with visit.page("login/code?username=Ada") as page:
            await check_page(page)
        sources = "source=demo-1&source=demo-2"
        paths = (
            "login",
            "",
            "#list",
            "?q=nothing+at+all",
            "playlists",
            "playlists/demo-1",
            f"marathon?{sources}&method=interleave&pattern=A9Z",
            f"marathon?{sources}&method=shuffle",
            "channel",
            "statistics",
        )
        async with visit.page(context=context) as page:
            for path in paths:
                await page.goto(f"{visit.url}/playlist/{path}")
                await check_themes(page)

    run(tmp_path, scenario)


def test_text_of_others_stays_text_on_every_page_and_in_events(tmp_path: Path) -> None:
    async def scenario(visit: Visit) -> None:
        context = await visit.signed_in("Ada")
        async with visit.page(context=context) as page:
            page.on("dialog", lambda dialog: pytest.fail("a title ran a script"))
            await page.get_by_label("Search titles").fill("onerror")
            await page.get_by_text("1 title", exact=True).wait_for()
            await page.get_by_role("button", name="Add").click()
            await expect(page.locator("#list .title")).to_have_text(HOSTILE)
            await page.get_by_text("Another list").click()
            await page.get_by_label("Start a new one").fill(HOSTILE)
            await page.get_by_role("button", name="Create").click()
            await expect(page.locator("#list-title")).to_have_text(HOSTILE)
            await page.get_by_role("button", name="Add").first.click()
            await page.get_by_role("status").filter(has_text="Added").wait_for()
            await page.locator("a[href='/playlist/playlists']").click()
            await page.get_by_role("link", name=HOSTILE).first.click()
            await page.get_by_role("button", name="Push").click()
            await page.get_by_text("Pushed: 1 item added").wait_for()
            await page.goto(f"{visit.url}/playlist/channel")
            visit.robot.titles = {each: (HOSTILE, 60) for each in visit.robot.titles}
            await visit.robot.enqueue([next(iter(visit.robot.titles))])
            await visit.robot.play(len(visit.robot.queue) - 1)
            await expect(page.locator("#now .now-title")).to_contain_text(HOSTILE)
            await expect(page.locator("#queue .playing .title")).to_have_text(HOSTILE)
            assert await page.locator("main img, main script").count() == 0

    run(tmp_path, scenario)


def test_an_item_is_dragged_and_two_members_see_the_same_channel(tmp_path: Path) -> None:
    async def scenario(visit: Visit) -> None:
        ada, bob = await visit.signed_in("Ada"), await visit.signed_in("Bob", width=390)
        async with visit.page(context=ada) as first, visit.page("channel", context=bob) as second:
            await first.get_by_label("Search titles").fill("paper moons s02")
            for number in (1, 2, 3):
                await first.get_by_role("button", name=f"Add Paper Moons S02E0{number}").click()
                await expect(first.locator("#list .items > li")).to_have_count(number)
            grips, rows = first.locator("[data-grip]"), first.locator("#list .items > li")
            start, end = await grips.nth(0).bounding_box(), await rows.nth(2).bounding_box()
            assert start is not None and end is not None
            await first.mouse.move(start["x"] + 10, start["y"] + 10)
            await first.mouse.down()
            await first.mouse.move(start["x"] + 10, end["y"] + end["height"] - 4, steps=8)
            await first.mouse.up()
            await first.get_by_role("status").filter(has_text="S02E01 is now 3 of 3").wait_for()
            titles = await rows.locator(".title").all_inner_texts()
            assert [each[-3:] for each in titles] == ["E02", "E03", "E01"]
            await grips.nth(0).focus()
            await first.keyboard.press("End")
            await grips.nth(0).focus()  # before the first move was sent
            await first.keyboard.press("ArrowDown")
            await first.get_by_role("status").filter(has_text="S02E03 is now 2 of 3").wait_for()
            titles = await rows.locator(".title").all_inner_texts()
            assert [each[-3:] for each in titles] == ["E01", "E03", "E02"]
            await first.get_by_role("button", name="Push", exact=True).click()
            await second.get_by_text("Pushed: 3 items added.").wait_for()
            await expect(second.locator("#queue .items > li")).to_have_count(7)
            await visit.robot.play()
            await second.get_by_role("button", name="Like").click()
            await expect(first.locator("#now [data-likes]")).to_have_text("1")
            await second.get_by_role("button", name="Like").click()
            await second.get_by_role("status").filter(has_text="already").wait_for()
            await visit.robot.play(1)
            await expect(first.locator("#now .now-title")).to_contain_text("Paper Moons S01E01")

    run(tmp_path, scenario)


def test_searches_are_in_the_history_and_a_lost_session_leads_to_the_login(tmp_path: Path) -> None:
    async def scenario(visit: Visit) -> None:
        context = await visit.signed_in("Bob")
        async with visit.page(context=context) as page:
            await page.get_by_role("link", name="Comedy 14").click()
            await page.get_by_text("14 titles").wait_for()
            await page.get_by_label("Search titles").fill("gnome")
            await page.get_by_text("1 title", exact=True).wait_for()
            await page.wait_for_url(re.compile("category=Comedy.*q=gnome|q=gnome.*category=Comedy"))
            await page.reload()
            await page.get_by_role("link", name="Chosen: Comedy 1").click()
            await page.get_by_role("link", name="Comedy 1", exact=True).wait_for()
            await page.go_back()
            await page.get_by_role("link", name="Chosen: Comedy 1").wait_for()
            sessions = visit.service.stores.auth
            async for entry in sessions.scan(SESSION):
                await sessions.delete(SESSION, session_id=str(entry.values[-1]))
            await page.get_by_role("button", name="Add Revenge").click()
            await page.get_by_label("Name in the channel").wait_for()

    run(tmp_path, scenario)


def test_login_search_and_list_work_without_scripts(tmp_path: Path) -> None:
    async def scenario(visit: Visit) -> None:
        async with visit.page(scripts=False, width=320) as page:
            await visit.sign_in(page, "Bob")
            await page.get_by_label("Search titles").fill("thriller")
            await page.get_by_role("button", name="Search").click()
            await page.get_by_role("link", name="Russian").click()
            await page.get_by_text("1 title", exact=True).wait_for()
            await page.get_by_role("button", name="Add Ночной поезд").click()
            await page.get_by_role("link", name="Details").click()
            await page.get_by_role("heading", name="New playlist").wait_for()
            await page.get_by_role("button", name="Push").click()
            await page.get_by_role("heading", name="Queue").wait_for()
            assert "Ночной поезд" in await page.locator("#queue").inner_text()

    run(tmp_path, scenario)
