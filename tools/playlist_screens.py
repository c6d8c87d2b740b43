"""Screenshots of playlist pages for the docs: `python -m tools.playlist_screens [--all FOLDER]`.

`--all` writes every page to a folder instead, in both themes and at 1,280 and 320 px, to look at.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from keyhouse_playlist.demo.robot import DemoRobot
from systems.playlist.tests.support.demo import demo_channel
from systems.playlist.tests.support.service import PlaylistService
from tests.support.browser_pages import open_browser
from tests.support.page_server import serving
from tools.page_screens import FOLDER, Screen, take_screens

HOME: Final = "/playlist/"
MARATHON: Final = f"{HOME}marathon?source=demo-1&source=demo-2&method=interleave&pattern=A2%20B"
PATHS: Final = {
    "catalog": HOME,
    "list": f"{HOME}#list",
    "search": f"{HOME}?q=orbit",
    "nothing": f"{HOME}?q=nothing+here",
    "playlists": f"{HOME}playlists",
    "playlist": f"{HOME}playlists/demo-1",
    "marathon": MARATHON,
    "shuffle": f"{HOME}marathon?source=demo-3&method=shuffle",
    "channel": f"{HOME}channel",
    "statistics": f"{HOME}statistics",
    "code": f"{HOME}login/code?username=Ada",
}
ITEMS: Final = ("series0-01", "series0-02", "film5", "series0-03", "film8", "series0-02")


async def search(page: Page) -> None:
    await page.get_by_label("Search titles").fill("harbour")
    await page.get_by_text("12 titles").wait_for()


async def push(page: Page) -> None:
    await page.get_by_label("Push to the channel").select_option("insert_next")
    await page.get_by_role("button", name="Push", exact=True).click()
    await page.get_by_text("Pushing to the channel: 2 of").wait_for()


SCREENS: Final = (
    Screen("playlist-builder", HOME, height=760, prepare=search),
    Screen("playlist-marathon", MARATHON, height=760),
    Screen("playlist-phone", f"{HOME}#list", width=390, height=760),
    Screen("playlist-push", f"{HOME}playlists/demo-1", is_dark=True, height=640, prepare=push),
)


async def fill(service: PlaylistService, robot: DemoRobot) -> None:
    """Make a playlist, and some plays and likes."""
    ada = await service.member("Ada")
    items = [{"video_id": id} for id in ITEMS]
    await ada.post("/playlists", {"name": "Friday double feature", "items": items}, 201)
    for position, fans in ((1, ("Cleo", "Dan", "Eve")), (3, ("Finn",)), (0, ("Cleo", "Gus"))):
        await robot.play(position)
        for number, name in enumerate(fans):
            fan = await service.member(name, f"192.0.2.{number + 10}")
            await fan.post("/likes/current")
    assert robot.current is not None
    robot.current["currentTime"] = 2_480
    await robot.enqueue([])


def every_page() -> list[Screen]:
    return [
        Screen(f"{name}-{'dark' if dark else 'light'}-{width}", path, dark, width)
        for name, path in PATHS.items()
        for dark in (False, True)
        for width in (1_280, 320)
    ]


async def main(arguments: list[str]) -> None:
    folder = Path(tempfile.mkdtemp())
    async with (
        demo_channel(folder, queue_interval_seconds=0.6) as (service, robot),
        serving(service.app) as url,
        open_browser() as browser,
    ):
        await fill(service, robot)

        async def sign_in(page: Page) -> None:
            await page.context.add_cookies(
                [{"name": each.name, "value": each.value or "", "url": url} for each in cookies]
            )

        cookies = [*(await service.member("Ada")).http.cookies.jar]
        screens, to = (every_page(), Path(arguments[1])) if arguments else (SCREENS, FOLDER)
        to.mkdir(parents=True, exist_ok=True)
        await take_screens(browser, url, screens, start=HOME, sign_in=sign_in, folder=to)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
