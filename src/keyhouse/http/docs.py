"""The documents and the page that shows them: `/<system>/openapi.json`, `/<system>/docs`, and `/docs` for all systems.

The page is Swagger UI, from files that come with the package: nothing is fetched from elsewhere, and the page may not.
"""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from keyhouse import __version__
from keyhouse.http.endpoint import Section
from keyhouse.http.openapi import openapi
from keyhouse.http.response import JSON, Response
from keyhouse.http.route import Route
from keyhouse.http.static_files import constant_route, file_route, page_route, redirect, tag_of

_ASSETS = Path(__file__).parent / "assets"
_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
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


def docs_routes(sections: Sequence[Section], *, alone: bool) -> Iterator[Route]:
    """The routes of the documents and pages, with their prefixes. Relative links only: the app may be mounted anywhere."""
    shown = [section for section in sections if any(route.listed for route in section.routes)]
    for section in shown:
        prefix = "" if alone else f"/{section.name}"
        others = [] if alone else [(each.name, f"../{each.name}/docs") for each in shown]
        page = _page(
            section.title or section.name,
            "openapi.json",
            others,
            section.name,
            "docs" if alone else "../docs",
        )
        yield _document(section, prefix)
        yield page_route(f"{prefix}/docs", page, "The reference of this system.", policy=_POLICY)
    if shown and not alone:
        first = shown[0]
        links = [(each.name, f"{each.name}/docs") for each in shown]
        page = _page("Keyhouse", f"{first.name}/openapi.json", links, first.name, "docs")
        yield page_route("/docs", page, "The reference of every system.", policy=_POLICY)
        yield redirect("/", "/docs", "To the reference.")
    for name in _FILES:
        yield file_route(f"/docs/{name}", _ASSETS / name, cache="max-age=3600")


def _page(
    title: str, document: str, links: list[tuple[str, str]], current: str, assets: str
) -> bytes:
    shown = "".join(
        f'<a href="{html.escape(link)}"{" aria-current=page" if name == current else ""}>{html.escape(name)}</a>'
        for name, link in links
    )
    return _PAGE.format(
        title=html.escape(title), document=html.escape(document), links=shown, assets=assets
    ).encode()


def _document(section: Section, prefix: str) -> Route:
    made = openapi(section, version=__version__, at=prefix)

    async def document(root: str) -> Response[bytes]:
        body = msgspec.json.encode(made | {"servers": [{"url": root + prefix or "/"}]})
        return Response(body, headers=(("Cache-Control", "no-cache"),), etag=tag_of(body))

    return constant_route(
        f"{prefix}/openapi.json", document, JSON, "The OpenAPI document of this system."
    )
