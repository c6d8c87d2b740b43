"""Pages for people, and the files that belong to them: constants of the package, each with its tag.

A page says by its policy what a browser may do with it: nothing is fetched from elsewhere, and no page of another site may
show it in a frame.
"""

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from keyhouse.http.response import Response, ResponseSpec
from keyhouse.http.route import Route

HTML = "text/html; charset=utf-8"
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""What a page may do that has its scripts and styles in files of its own."""

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\b)")


class _Encodings(msgspec.Struct):
    accepted: str = msgspec.field(default="", name="Accept-Encoding")


def page_route(path: str, body: bytes, about: str, *, policy: str = STRICT) -> Route:
    """A page of HTML that is the same for everybody, and so holds nothing that is not for everybody."""
    tag = tag_of(body)
    headers = (("Cache-Control", "no-cache"), ("Content-Security-Policy", policy))

    async def page() -> Response[bytes]:
        return Response(body, headers=headers, etag=tag, media_type=HTML)

    return constant_route(path, page, HTML, about)


def file_route(path: str, file: Path, *, cache: str = "no-cache") -> Route:
    """A file of the package; one that is kept packed, as `<file>.gz`, is unpacked for the rare client that wants it so. A
    browser asks each time whether it is still the same, unless `cache` says otherwise: a page must not meet the files of
    another version."""
    packed = file.with_name(f"{file.name}.gz")
    body = packed.read_bytes() if packed.exists() else file.read_bytes()
    media_type = _TYPES[file.suffix]
    said = (("Cache-Control", cache), ("Vary", "Accept-Encoding"))
    tag = tag_of(body)

    async def plain() -> Response[bytes]:
        return Response(body, headers=said, etag=tag, media_type=media_type)

    async def unpacked(headers: _Encodings) -> Response[bytes]:
        if _GZIP.search(headers.accepted):
            return Response(
                body, headers=(*said, ("Content-Encoding", "gzip")), etag=tag, media_type=media_type
            )
        return Response(
            gzip.decompress(body), headers=said, etag=tag_of(b"plain" + body), media_type=media_type
        )

    return constant_route(
        path, unpacked if packed.exists() else plain, media_type, "A file of the page."
    )


def redirect(path: str, to: str, about: str) -> Route:
    """Whoever opens `path` is led to another: both are below the root of the app."""

    async def lead(root: str) -> Response[bytes]:
        return Response(b"", status=307, headers=(("Location", root + to),), media_type=HTML)

    replies = {307: ResponseSpec(type=bytes, about=about, media_type=HTML)}
    return Route(method="GET", path=path, handler=lead, replies=replies, listed=False)


def constant_route(
    path: str, handler: Callable[..., Awaitable[Any]], media_type: str, about: str
) -> Route:
    returns = ResponseSpec(
        type=bytes, about=about, media_type=media_type, headers={"ETag": "Of what it holds."}
    )
    return Route(method="GET", path=path, handler=handler, replies={200: returns}, listed=False)


def tag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'
