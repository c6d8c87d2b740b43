"""Static pages and files of the package, and the documentation that every app has, made of them:
`/<service>/openapi.json`, `/<service>/docs` and `/docs`.

The page of the documentation is Swagger UI, from packaged files. The policy of a page forbids the
browser to load anything from elsewhere, and other sites to show it in a frame.
"""

import gzip
import hashlib
import html
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from keyhouse import __version__
from keyhouse.http.content_negotiation import accepts_gzip
from keyhouse.http.endpoint import Section
from keyhouse.http.openapi import openapi
from keyhouse.http.response import JSON, Response, ResponseSpec
from keyhouse.http.router import Route

HTML = "text/html; charset=utf-8"
STRICT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""For a page whose scripts and styles are separate files."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

ASSETS = Path(__file__).parent / "assets"
VENDOR = ASSETS / "vendor"
"""Files of other projects, as `vendor.lock` lists them."""

_ICON = ASSETS / "icon.svg"
_PAGE_FILES = (
    ASSETS / "pages.css",
    _ICON,
    ASSETS / "keyhouse.js",
    VENDOR / "htmx.min.js",
    VENDOR / "hx-sse.min.js",
)
_ASSET_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js")
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_DOCS_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{assets}/../assets/icon.svg">
<link rel="stylesheet" href="{assets}/swagger-ui.css">
<style>
body {{ margin: 0; }}
nav {{
  font: 15px/1.6 sans-serif; margin: 0; padding: 12px 24px; background: #1b1b1b; color: #ccc;
  display: flex; flex-wrap: wrap; gap: 2px 18px;
}}
nav a {{ color: #fff; }}
nav a[aria-current] {{
  text-decoration: none; font-weight: bold; border-bottom: 2px solid #62d47f;
}}
</style>
</head>
<body data-document="{document}">
<nav>Keyhouse{links}</nav>
<main id="reference"></main>
<script src="{assets}/swagger-ui-bundle.js"></script>
<script src="{assets}/docs.js"></script>
</body>
</html>
"""


_HOST = re.compile(r"[A-Za-z0-9.-]{1,255}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")


class _Host(msgspec.Struct):
    host: str = msgspec.field(default="", name="Host")


class _Encodings(msgspec.Struct):
    accepted: str = msgspec.field(default="", name="Accept-Encoding")


def page_route(path: str, body: bytes, about: str, *, policy: str = STRICT_POLICY) -> Route:
    """Return the route of an HTML page that is the same for every caller, without a token."""
    tag = _content_tag(body)
    headers = (("Cache-Control", "no-cache"), ("Content-Security-Policy", policy))

    async def page() -> Response[bytes]:
        return Response(body, headers=headers, etag=tag, media_type=HTML)

    return _static_route(path, page, HTML, about)


def hosted_page_route(path: str, body: bytes, about: str, *, address: str) -> Route:
    """Return the route of an HTML page with examples: `address` in it stands for the host and port
    at which the caller has reached the service."""
    own = (
        ("Cache-Control", "no-cache"),
        ("Content-Security-Policy", STRICT_POLICY),
        ("Vary", "Accept"),  # programs get an error at the path of a service
    )

    async def page(headers: _Host) -> Response[bytes]:
        host = headers.host if _HOST.fullmatch(headers.host) else address
        text = body.replace(address.encode(), host.encode())
        return Response(text, headers=own, etag=_content_tag(text), media_type=HTML)

    return _static_route(path, page, HTML, about)


def file_route(path: str, file: Path, *, cache: str = "no-cache") -> Route:
    """Return the route of a packaged file.

    It is sent compressed to clients that accept gzip; one that is packaged as `<file>.gz` is
    decompressed for the first other one, and kept. By default browsers revalidate it on each use: a
    page must not meet files of another version.
    """
    packaged = file.with_name(f"{file.name}.gz")
    plain = None if packaged.exists() else file.read_bytes()
    body = packaged.read_bytes() if plain is None else gzip.compress(plain, mtime=0)
    media_type = _TYPES[file.suffix]
    shared = (("Cache-Control", cache), ("Vary", "Accept-Encoding"))
    tag, plain_tag = _content_tag(body), _content_tag(b"plain" + body)

    @lru_cache(maxsize=1)
    def decompressed() -> bytes:
        """Once, if at all: it takes 10 ms, for a caller without a token."""
        return gzip.decompress(body)

    async def content(headers: _Encodings) -> Response[bytes]:
        if accepts_gzip(headers.accepted):
            own = (*shared, ("Content-Encoding", "gzip"))
            return Response(body, headers=own, etag=tag, media_type=media_type)
        text = decompressed() if plain is None else plain
        return Response(text, headers=shared, etag=plain_tag, media_type=media_type)

    return _static_route(path, content, media_type, "A file of the page.")


def redirect_route(path: str, to: str, about: str) -> Route:
    """Return a route that redirects to another path; both are below the root of the app."""

    async def redirected(root: str) -> Response[bytes]:
        return Response(b"", status=307, headers=(("Location", root + to),), media_type=HTML)

    replies = {307: ResponseSpec(type=bytes, about=about, media_type=HTML)}
    return Route(method="GET", path=path, handler=redirected, replies=replies, listed=False)


def docs_routes(sections: Sequence[Section], *, alone: bool) -> Iterator[Route]:
    """Yield the routes of the OpenAPI documents and pages, with their prefixes.

    Links are relative, because the app may be mounted anywhere.
    """
    listed = [section for section in sections if any(route.listed for route in section.routes)]
    for section in listed:
        prefix = "" if alone else f"/{section.name}"
        links = [] if alone else [(each.name, f"../{each.name}/docs") for each in listed]
        page = _docs_page(
            section.title or section.name,
            "openapi.json",
            links,
            section.name,
            "docs" if alone else "../docs",
        )
        yield _document_route(section, prefix)
        yield page_route(
            f"{prefix}/docs", page, "The API reference of this service.", policy=_DOCS_POLICY
        )
    if listed and not alone:
        first = listed[0]
        links = [(each.name, f"{each.name}/docs") for each in listed]
        page = _docs_page("Keyhouse", f"{first.name}/openapi.json", links, first.name, "docs")
        yield page_route("/docs", page, "The API reference of every service.", policy=_DOCS_POLICY)
    for name in _ASSET_FILES:
        yield file_route(f"/docs/{name}", ASSETS / name, cache="max-age=3600")


def asset_routes(*, alone: bool) -> Iterator[Route]:
    """Yield the routes of the files that the pages of all services share. Browsers ask for
    `/favicon.ico` beside whatever has no page, such as JSON."""
    if not alone:
        yield file_route("/favicon.ico", _ICON)
    for file in _PAGE_FILES:
        yield file_route(f"/assets/{file.name}", file, cache="max-age=3600")


def _docs_page(
    title: str, document: str, links: list[tuple[str, str]], current: str, assets: str
) -> bytes:
    items = "".join(
        f'<a href="{html.escape(link)}"{" aria-current=page" if name == current else ""}>'
        f"{html.escape(name)}</a>"
        for name, link in links
    )
    return _DOCS_PAGE.format(
        title=html.escape(title), document=html.escape(document), links=items, assets=assets
    ).encode()


def _document_route(section: Section, prefix: str) -> Route:
    @cache
    def generated() -> dict[str, Any]:
        """At the first request: it takes as long as the start of the service."""
        return openapi(section, version=__version__, at=prefix)

    async def document(root: str) -> Response[bytes]:
        body = msgspec.json.encode(generated() | {"servers": [{"url": root + prefix or "/"}]})
        return Response(body, headers=(("Cache-Control", "no-cache"),), etag=_content_tag(body))

    return _static_route(
        f"{prefix}/openapi.json", document, JSON, "The OpenAPI document of this service."
    )


def _static_route(
    path: str, handler: Callable[..., Awaitable[Any]], media_type: str, about: str
) -> Route:
    returns = ResponseSpec(
        type=bytes, about=about, media_type=media_type, headers={"ETag": "A hash of the content."}
    )
    return Route(method="GET", path=path, handler=handler, replies={200: returns}, listed=False)


def _content_tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'
