"""The frame and the stylesheet that all pages share."""

import asyncio
from pathlib import Path

import httpx
import pytest

from keyhouse.http import HtmlPage, HttpSettings, Route, Templates, make_app
from keyhouse.service.spec import ServiceSpec
from tests.support.browser_pages import Pages, run_in_browser
from tests.support.page_server import serving

pytestmark = pytest.mark.browser

SAMPLE = Path(__file__).parent / "samples"


async def sample() -> HtmlPage:
    """Every element of the stylesheet."""
    return Templates(SAMPLE).page("elements.html", name="<script>alert(1)</script>")


SPEC = ServiceSpec(name="sample", routes=[Route(method="GET", path="/", handler=sample)])


@pytest.mark.soak
def test_every_element_is_readable_in_every_theme_and_width() -> None:
    async def scenario(browser: Pages) -> None:
        async with serving(make_app([SPEC])) as url:
            await browser.check(f"{url}/sample/")
            async with browser.visit(f"{url}/sample/") as page:
                await page.keyboard.press("Tab")
                skip = page.get_by_role("link", name="Skip to content")
                assert await skip.evaluate("each => each === document.activeElement")
                await page.keyboard.press("Enter")
                assert await page.evaluate("document.activeElement.id") == "main"

    run_in_browser(scenario)


def test_the_shared_files_are_served_compressed_even_without_docs() -> None:
    async def scenario() -> None:
        app = make_app([SPEC], settings=HttpSettings(docs=False))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for name in ("pages.css", "icon.svg", "htmx.min.js", "hx-sse.min.js"):
                response = await client.get(f"/assets/{name}")
                assert response.status_code == 200
                assert response.headers["content-encoding"] == "gzip"
                plain = await client.get(f"/assets/{name}", headers={"Accept-Encoding": ""})
                assert plain.content == response.content
                assert plain.headers["etag"] != response.headers["etag"]

    asyncio.run(scenario())
