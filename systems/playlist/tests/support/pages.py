"""The pages in a browser without scripts: forms and links alone."""

import html
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from systems.playlist.tests.support.service import PlaylistService, item
from systems.playlist.tests.support.service import run as run_service

HOSTILE = "<script>alert(1)</script><b>&amp;"
ITEMS = [
    item("a1", "Alien S01E01", "Horror", "SciFi", seconds=100),
    item("a2", "Alien S01E02", "Horror", seconds=200),
    item("b1", "Blade Runner", "SciFi", seconds=300),
    item("h 1", HOSTILE, f"{HOSTILE} films", seconds=None),
]

Work = Callable[[PlaylistService], Awaitable[None]]


class Browser:
    """A browser without scripts. `text` is the last page."""

    def __init__(self, service: PlaylistService, root: str = "") -> None:
        transport = httpx.ASGITransport(service.app, root_path=root)
        self.http = httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=60, follow_redirects=True
        )
        self._service = service
        self._root = root
        self.text = ""
        self.path = ""
        self.status = 0

    async def get(self, path: str) -> str:
        return self._seen(await self.http.get(f"{self._root}{path}"))

    async def post(self, path: str, _headers: Any = None, **form: Any) -> str:
        url = f"{self._root}{path}"
        return self._seen(await self.http.post(url, data=form, headers=_headers))

    async def part(self, path: str, **form: Any) -> str:
        """Post as htmx does."""
        return await self.post(path, {"HX-Request": "true", "Accept": "text/html"}, **form)

    async def sign_in(self, name: str) -> None:
        await self.post("/playlist/login", username=name)
        await self.post("/playlist/login/code", username=name, code=self._service.codes[name])
        assert self.path == f"{self._root}/playlist/", self.text

    def _seen(self, response: httpx.Response) -> str:
        assert response.headers["content-type"].startswith("text/html"), response.text
        assert "unsafe" not in response.headers["content-security-policy"]
        assert "<script>" not in response.text and "<b>&" not in response.text
        self.path, self.status = response.url.path, response.status_code
        self.source = " ".join(response.text.split())  # a template may break its lines anywhere
        self.text = html.unescape(re.sub(r"<[^>]*>", " ", self.source))
        return self.text


run = partial(run_service, items=ITEMS, blessed=("Bob", "Eve"))


async def member(service: PlaylistService, name: str, root: str = "") -> Browser:
    browser = Browser(service, root)
    await browser.sign_in(name)
    return browser


def open_id(browser: Browser) -> str:
    """Return the id of the list that the page shows."""
    found = re.search(r'name="list" value="([^"]+)"', browser.source)
    assert found is not None, browser.source
    return found[1]
