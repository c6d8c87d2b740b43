"""Screenshots of the Studio for the docs: `python -m tools.studio_screens`."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from tests.studio.support.library import fill, library, token
from tests.support.browser_pages import open_browser
from tests.support.page_server import serving

FOLDER: Final = Path(__file__).parent.parent / "docs" / "screens"

MAIN: Final = "/studio/library/main"
PAGES: Final = {
    "studio-systems": ("/studio/", False),
    "studio-tree": (f"{MAIN}/tree?at=by-author:", True),
    "studio-table": (f"{MAIN}/book?q=author%3Dlem", False),
    "studio-key": (f"{MAIN}/key?k=book:b000", False),
    "studio-edit": (f"{MAIN}/edit?k=book:b000", False),
    "studio-schema": ("/studio/library/schema", True),
}
"""The pages by the name of their picture, and whether they are shown dark."""


async def main() -> None:
    async with library(Path(tempfile.mkdtemp())) as served:
        await fill(served.store, 40)
        async with serving(served.app) as url, open_browser() as browser:
            for name, (path, dark) in PAGES.items():
                context = await browser.context(dark=dark, width=1_100)
                async with browser.visit(f"{url}/studio/", context=context) as page:
                    await page.get_by_label("Operator's token").fill(token())
                    await page.get_by_role("button", name="Sign in").click()
                    await page.get_by_role("heading", name="Systems").wait_for()
                    await page.goto(f"{url}{path}")
                    if name == "studio-edit":
                        await page.get_by_label("author").fill("asimov")
                        await page.get_by_role("button", name="Preview").click()
                        region = page.get_by_role("region", name="Preview")
                        await region.scroll_into_view_if_needed()
                        await region.evaluate("each => each.scrollIntoView()")
                    await page.screenshot(path=FOLDER / f"{name}.png")
                await context.close()
                print(f"Wrote docs/screens/{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
