"""A MediaCMS over HTTP: its list of media, page by page, and their details, with failures.

The members are those of its serializers: the list has no categories, and the details have no token.
"""

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
    `cut`, a body that ends early. `types` are those of the media in turn; `gone` were deleted after
    they were listed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.fails: dict[int, int] = {}
        self.cut: dict[int, int] = {}
        self.gone: set[int] = set()
        self.types: tuple[str, ...] = ("video",)
        self.url = ""
        self.tokens: set[str | None] = set()

    def media_type(self, number: int) -> str:
        return self.types[number % len(self.types)]

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a page of the list, or of the details of a medium."""
        parts = urlsplit(path)
        token = parts.path.rpartition("/")[2]
        if token != "media":
            number = int(token.removeprefix("t"))
            if number in self.gone:
                return 400, b'{"detail":"media file does not exist"}'
            return 200, json.dumps(details(number, self.media_type(number))).encode()
        page = int(parse_qs(parts.query)["page"][0])
        if self.fails.get(page, 0) > 0:
            self.fails[page] -= 1
            return 503, b""
        first = (page - 1) * PAGE
        numbers = range(first, min(first + PAGE, self.count))
        following = (
            f"{self.url}/api/v1/media?page={page + 1}" if numbers.stop < self.count else None
        )
        results = [listed(number, self.media_type(number), self.url) for number in numbers]
        body = json.dumps(
            {"count": self.count, "next": following, "previous": None, "results": results}
        ).encode()
        if self.cut.get(page, 0) > 0:
            self.cut[page] -= 1
            body = body[: len(body) // 2]
        return 200, body


def listed(number: int, media_type: str = "video", url: str = "https://cms") -> dict[str, Any]:
    """Return a medium as `MediaSerializer` has it, which the list uses."""
    return {
        "friendly_token": f"t{number}",
        "url": f"{url}/view?m=t{number}",
        "api_url": f"{url}/api/v1/media/t{number}",
        "user": "ada",
        "title": f"Medium {number}",
        "description": "",
        "add_date": "2026-01-01T00:00:00.000000Z",
        "views": 3,
        "media_type": media_type,
        "state": "public",
        "duration": 60 if media_type in ("video", "audio") else 0,
        "thumbnail_url": f"{url}/media/{number}.jpg",
        "is_reviewed": True,
        "preview_url": None,
        "author_name": "Ada",
        "author_profile": f"{url}/user/ada/",
        "author_thumbnail": f"{url}/media/userlogos/user.jpg",
        "encoding_status": "success",
        "likes": 1,
        "dislikes": 0,
        "reported_times": 0,
        "featured": False,
        "user_featured": False,
        "size": "3.1MB",
    }


def details(number: int, media_type: str = "video") -> dict[str, Any]:
    """Return a medium as `SingleMediaSerializer` has it."""
    shared = ("url", "user", "title", "description", "add_date", "state", "duration", "views")
    known = listed(number, media_type)
    name = "Horror" if number % 2 else "Comedy"
    category = {"title": name, "url": f"/search?c={name}", "is_lms_course": False}
    return {
        **{member: known[member] for member in shared},
        "edit_date": "2026-01-02T00:00:00.000000Z",
        "media_type": media_type,
        "thumbnail_url": f"/media/{number}.jpg",
        "encodings_info": {},
        "categories_info": [category],
        "tags_info": [],
        "related_media": [listed(number + 1)],
    }


@contextmanager
def mediacms(count: int) -> Iterator[MediaCmsServer]:
    state = MediaCmsServer(count)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.tokens.add(self.headers.get("Authorization"))
            status, body = state.answer(self.path)
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
