"""The harness of the page tests reports what no page may do."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser_pages import run_in_browser

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
    run_in_browser(lambda browser: browser.check(f"{server}/good"))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/inline", "script-src"),
        ("/error", "thrown"),
        ("/other", "another origin"),
        ("/unlabelled", "label"),
        ("/wide", "sideways"),
    ],
)
def test_a_page_that_does_what_no_page_may_do_fails_with_its_picture(
    server: str, path: str, problem: str
) -> None:
    with pytest.raises(AssertionError, match=problem) as failed:
        run_in_browser(lambda browser: browser.check(f"{server}{path}"))
    [note] = failed.value.__notes__
    picture = Path(note.removeprefix(f"screenshot of {server}{path}: "))
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
