"""The site: built from the repository's Markdown, with links that lead somewhere and a search.

No test is marked `long`, so that one process has them all, and builds the site once.
"""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from playwright.async_api import expect

from tests.docs.pages import DOCS
from tests.support.browser_pages import Pages, run_in_browser
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


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def broken(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
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


def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert list(broken(site, pages)) == []


def test_the_site_loads_nothing_from_other_hosts(pages: dict[Path, Page]) -> None:
    found = {
        resource
        for page in pages.values()
        for resource in page.resources
        if re.match(r"(https?:)?//", resource)
    }
    assert found == set()


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
    "production tokens": ("tokens", "faq"),
    "serve a page": ("faq", "browser"),
    "static files": ("faq", "browser"),
    "paginate": ("pagination",),
    "transaction across records": ("transactions",),
    "rate limit users": ("cooldown", "faq"),
    "full-text search": ("search",),
    "rename a field": ("change-a-field", "faq"),
    "drop a field": ("change-a-field", "faq"),
    "several machines": ("faq",),
    "typescript client": ("faq",),
    "scheduled jobs": ("jobs-and-webhooks",),
    "security of the studio": ("studio",),
    "upgrade path": ("upgrade",),
    "backup": ("backup", "faq"),
    "custom route": ("faq", "song-requests"),
    "overlay token": ("faq", "browser", "tokens"),
    "tenants": ("per-user-data", "forget"),
}
"""Queries of a reader, and the guides that answer each."""


@pytest.mark.browser
def test_the_search_of_the_opened_files_finds_a_guide_first(site: Path) -> None:
    """The site has no server: its search box was hidden. With one, reports and the changelog came
    before the guides."""

    async def scenario(browser: Pages) -> None:
        async with browser.visit((site / "index.html").as_uri()) as page:
            box = page.get_by_placeholder("Search")
            links = page.locator(".md-search-result__link")
            await box.click()
            for query, guides in QUERIES.items():
                for text in ("", query):  # results of the last query go first
                    await box.fill(text)
                    await box.press("End")  # it searches when a key is released
                    if not text:
                        await expect(links).to_have_count(0)
                await links.first.wait_for()
                place = str(await links.first.get_attribute("href")).partition("?")[0]
                names = [f"docs/guides/{guide}.html" for guide in guides]
                assert any(place.partition("#")[0].endswith(name) for name in names), query

    run_in_browser(scenario)


def test_the_navigation_has_all_guides() -> None:
    text = json.dumps(navigation(DOCS))
    missing = [
        path.name
        for path in (DOCS / "guides").glob("*.md")
        if f'"docs/guides/{path.name}"' not in text
    ]
    assert missing == []
