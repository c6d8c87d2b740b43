"""The documents and the page that shows them: `/<system>/openapi.json`, `/<system>/docs`, and `/docs` for all systems.

The page is Swagger UI, from files that come with the package: nothing is fetched from elsewhere, and the page may not.
"""

import gzip
import hashlib
import html
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from keyhouse import __version__
from keyhouse.serve.http.endpoint import Section
from keyhouse.serve.http.openapi import openapi
from keyhouse.serve.http.reply import JSON, Reply, Returns
from keyhouse.serve.http.route import Route

_ASSETS = Path(__file__).parent / "assets"
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
}
_HTML = "text/html; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\b)")
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{assets}/swagger-ui.css">
<style>
body {{ margin: 0; }}
nav {{ font: 15px/1.6 sans-serif; margin: 0; padding: 12px 24px; background: #1b1b1b; color: #ccc; }}
nav a {{ color: #fff; margin-left: 18px; }}
nav a[aria-current] {{ text-decoration: none; font-weight: bold; border-bottom: 2px solid #62d47f; }}
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


class _Encodings(msgspec.Struct):
    accepted: str = msgspec.field(default="", name="Accept-Encoding")


def docs_routes(sections: Sequence[Section], *, alone: bool) -> Iterator[Route]:
    """The routes of the documents and pages, with their prefixes. Relative links only: the app may be mounted anywhere."""
    shown = [section for section in sections if any(route.listed for route in section.routes)]
    for section in shown:
        prefix = "" if alone else f"/{section.name}"
        others = [] if alone else [(each.name, f"../{each.name}/docs") for each in shown]
        page = _page(
            section.title or section.name, "openapi.json", others, section.name, "docs" if alone else "../docs"
        )
        yield _document(section, prefix)
        yield _constant(f"{prefix}/docs", page, _HTML, "The reference of this system.")
    if shown and not alone:
        first = shown[0]
        links = [(each.name, f"{each.name}/docs") for each in shown]
        page = _page("Keyhouse", f"{first.name}/openapi.json", links, first.name, "docs")
        yield _constant("/docs", page, _HTML, "The reference of every system.")
        yield _front_door()
    for name, media_type in _FILES.items():
        yield _file(name, media_type)


def _front_door() -> Route:
    """Who opens the address that the ready line prints is led to the reference."""

    async def front_door(root: str) -> Reply[bytes]:
        return Reply(b"", status=307, headers=(("Location", f"{root}/docs"),), media_type=_HTML)

    return Route(
        method="GET",
        path="/",
        handler=front_door,
        replies={307: Returns(type=bytes, about="To the reference.", media_type=_HTML)},
        listed=False,
    )


def _page(title: str, document: str, links: list[tuple[str, str]], current: str, assets: str) -> bytes:
    shown = "".join(
        f'<a href="{html.escape(link)}"{" aria-current=page" if name == current else ""}>{html.escape(name)}</a>'
        for name, link in links
    )
    return _PAGE.format(title=html.escape(title), document=html.escape(document), links=shown, assets=assets).encode()


def _document(section: Section, prefix: str) -> Route:
    made = openapi(section, version=__version__, at=prefix)

    async def document(root: str) -> Reply[bytes]:
        body = msgspec.json.encode(made | {"servers": [{"url": root + prefix or "/"}]})
        return Reply(body, headers=(("Cache-Control", "no-cache"),), etag=_tag(body))

    return _route(f"{prefix}/openapi.json", document, JSON, "The OpenAPI document of this system.")


def _constant(path: str, body: bytes, media_type: str, about: str) -> Route:
    tag = _tag(body)
    headers = (("Cache-Control", "no-cache"), *((("Content-Security-Policy", _POLICY),) if media_type == _HTML else ()))

    async def constant() -> Reply[bytes]:
        return Reply(body, headers=headers, etag=tag, media_type=media_type)

    return _route(path, constant, media_type, about)


def _file(name: str, media_type: str) -> Route:
    """A file of the package, kept packed, and unpacked for the rare client that wants it so."""
    packed = _ASSETS / f"{name}.gz"
    body = packed.read_bytes() if packed.exists() else (_ASSETS / name).read_bytes()
    said = (("Cache-Control", "max-age=3600"), ("Vary", "Accept-Encoding"))
    tag = _tag(body)

    async def plain() -> Reply[bytes]:
        return Reply(body, headers=said, etag=tag, media_type=media_type)

    async def unpacked(headers: _Encodings) -> Reply[bytes]:
        if _GZIP.search(headers.accepted):
            return Reply(body, headers=(*said, ("Content-Encoding", "gzip")), etag=tag, media_type=media_type)
        return Reply(gzip.decompress(body), headers=said, etag=_tag(b"plain" + body), media_type=media_type)

    return _route(f"/docs/{name}", unpacked if packed.exists() else plain, media_type, "A file of the page.")


def _route(path: str, handler: Callable[..., Awaitable[Any]], media_type: str, about: str) -> Route:
    returns = Returns(type=bytes, about=about, media_type=media_type, headers={"ETag": "Of what it holds."})
    return Route(method="GET", path=path, handler=handler, replies={200: returns}, listed=False)


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'
