"""The harness of the page tests reports what no page may do."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.browser_pages import open_browser

pytestmark = pytest.mark.browser

PAGES = {
    "/good": "<main><h1>Good</h1><p>Text</p></main>",
    "/inline": "<main><h1>Inline</h1><script>document.title = 'ran'</script></main>",
    "/error": '<main><h1>Error</h1><script src="/throws.js"></script></main>',
    "/other": '<main><h1>Other</h1><img alt="" src="http://127.0.0.2:1/a.png"></main>',
    "/unlabelled": "<main><h1>Form</h1><input></main>",
    "/wide": "<main><h1>Wide</h1><pre>" + "x" * 400 + "</pre></main>",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/throws.js":
            kind, text = "text/javascript", "throw new Error('thrown')"
        else:
            kind = "text/html; charset=utf-8"
            body = PAGES.get(self.path, "")
            text = f'<!doctype html><html lang="en"><title>A page</title><body>{body}</body></html>'
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", kind)
        policy = "default-src 'self'; img-src *" if self.path == "/other" else "default-src 'self'"
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_good_page_passes_in_every_theme_and_width(server: str) -> None:
    async def scenario() -> None:
        async with open_browser() as browser:
            await browser.check(f"{server}/good")

    asyncio.run(scenario())


def test_a_page_that_does_what_no_page_may_do_fails(server: str) -> None:
    async def scenario() -> dict[str, str]:
        failures: dict[str, str] = {}
        async with open_browser() as browser:
            for path in list(PAGES)[1:]:
                try:
                    await browser.check(f"{server}{path}")
                except AssertionError as error:
                    failures[path] = str(error)
        return failures

    failures = asyncio.run(scenario())
    assert "script-src" in failures["/inline"]
    assert "thrown" in failures["/error"]
    assert "another origin" in failures["/other"]
    assert "label" in failures["/unlabelled"]
    assert "sideways" in failures["/wide"]
