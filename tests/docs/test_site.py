"""The site: built from the repository's Markdown, with links that lead somewhere and a search."""

import asyncio
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.docs.pages import DOCS
from tests.support.browser_pages import open_browser
from tools.site import build, navigation


class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if named.get("id"):
            self.anchors.add(str(named["id"]))
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if tag == "link" and named.get("rel") in ("stylesheet", "preconnect", "icon"):
            self.resources.append(str(named.get("href")))
        if tag in ("script", "img") and named.get("src"):
            self.resources.append(str(named["src"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    build(folder)
    return folder


def broken(site: Path) -> Iterator[str]:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in [*page.links, *page.resources]:
            if re.match(r"[a-z]+:", link):
                continue
            place, anchor = urldefrag(unquote(link))
            target = (path.parent / place).resolve() if place else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path.relative_to(site)} links to {link}, which does not exist"
            elif (
                anchor
                and target in pages
                and anchor not in pages[target].anchors | {"top", "__skip"}
            ):
                yield f"{path.relative_to(site)} links to {link}, which has no such anchor"


@pytest.mark.long
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert list(broken(site)) == []


@pytest.mark.long
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    found = {
        resource
        for path in site.rglob("*.html")
        for resource in Page(path.read_text()).resources
        if re.match(r"(https?:)?//", resource)
    }
    assert found == set()


@pytest.mark.long
def test_the_search_finds_a_guide(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"docs/guides/transactions.html", "docs/api.html", "index.html"} <= places


QUERIES = {
    "unique per user": ("faq", "per-user-data"),
    "delete tenant": ("forget", "faq"),
    "login accounts": ("tokens", "faq"),
    "file upload": ("faq", "web-service"),
    "type change migration": ("change-a-field", "migrate"),
    "webhook": ("jobs-and-webhooks",),
}
"""Queries of a reader, and the guides that answer each."""


@pytest.mark.browser
@pytest.mark.long
def test_the_search_of_the_opened_files_finds_a_guide_first(site: Path) -> None:
    """The site has no server: its search box was hidden. With one, reports and the changelog came
    before the guides."""

    async def main() -> None:
        async with open_browser() as browser:
            for query, guides in QUERIES.items():
                async with browser.visit((site / "index.html").as_uri()) as page:
                    box = page.get_by_placeholder("Search")
                    await box.click()
                    await box.fill(query)
                    await box.press("End")  # it searches when a key is released
                    first = page.locator(".md-search-result__link").first
                    await first.wait_for()
                    place = str(await first.get_attribute("href")).partition("?")[0]
                    names = [f"docs/guides/{guide}.html" for guide in guides]
                    assert any(place.partition("#")[0].endswith(name) for name in names), query

    asyncio.run(main())


def test_the_navigation_has_all_guides() -> None:
    text = json.dumps(navigation(DOCS))
    missing = [
        path.name
        for path in (DOCS / "guides").glob("*.md")
        if f'"docs/guides/{path.name}"' not in text
    ]
    assert missing == []
