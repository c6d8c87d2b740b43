"""A MediaCMS over HTTP: its list of media, page by page, with failures."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 50


class MediaCmsServer:
    """`count` media. A request for a page in `fails` gets 503, as often as it says; for one in
    `cut`, a body that ends early."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.fails: dict[int, int] = {}
        self.cut: dict[int, int] = {}
        self.url = ""
        self.tokens: set[str | None] = set()

    def answer(self, page: int) -> tuple[int, bytes]:
        if self.fails.get(page, 0) > 0:
            self.fails[page] -= 1
            return 503, b""
        first = (page - 1) * PAGE
        numbers = range(first, min(first + PAGE, self.count))
        following = (
            f"{self.url}/api/v1/media?page={page + 1}" if numbers.stop < self.count else None
        )
        results = [self._medium(number) for number in numbers]
        body = json.dumps({"count": self.count, "next": following, "results": results}).encode()
        if self.cut.get(page, 0) > 0:
            self.cut[page] -= 1
            body = body[: len(body) // 2]
        return 200, body

    def _medium(self, number: int) -> dict[str, Any]:
        return {
            "friendly_token": f"t{number}",
            "title": f"Medium {number}",
            "duration": 60,
            "thumbnail_url": f"/media/{number}.jpg",
            "categories_info": [{"title": "Horror" if number % 2 else "Comedy"}],
        }


@contextmanager
def mediacms(count: int) -> Iterator[MediaCmsServer]:
    state = MediaCmsServer(count)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.tokens.add(self.headers.get("Authorization"))
            page = int(parse_qs(urlsplit(self.path).query)["page"][0])
            status, body = state.answer(page)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
