"""The front pages: `/` lists the services that run here, and `/<service>/` describes one that
has no other page.

They lead people to what works for them: first the pages, then the APIs, each with commands that
need only curl and `keyhouse`. Links are relative, because the app may be mounted anywhere.
"""

import html
from collections.abc import Sequence
from typing import Final

from keyhouse.http.endpoint import Section
from keyhouse.http.router import Route
from keyhouse.http.static import hosted_page_route

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" type="image/svg+xml" href="{root}assets/icon.svg">
<link rel="stylesheet" href="{root}assets/pages.css">
</head>
<body>
<main>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""

_ADDRESS: Final = "127.0.0.1:8080"
"""The address of a service in its examples, in place of which the page has its own."""

_HINT: Final = (
    '<p class="quiet">Run the commands in the folder in which this service was started.'
    " <code>keyhouse</code> is the program that started it: in a clone,"
    " <code>.venv-serve/bin/keyhouse</code>.</p>"
)
_PROCESS: Final = {
    "/pages/": "Your pages",
    "/ready": "Readiness",
    "/health": "Health",
    "/metrics": "Metrics",
}


def landing_route(sections: Sequence[Section], routes: Sequence[Route] = ()) -> Route:
    """Return the route of the page that lists the services, and what to try with each. `routes`
    are those of the process itself."""
    with_page = [section for section in sections if has_page(section)]
    without = [section for section in sections if not has_page(section)]
    parts = [
        f'<h2>{title}</h2>\n<ul class="cards">\n{cards}\n</ul>'
        for title, group in (("Pages", with_page), ("APIs", without))
        if (cards := "\n".join(_card(section) for section in group))
    ]
    if any(section.examples for section in sections):
        parts.append(_HINT)
    paths = {route.path for route in routes}
    links = [("docs", "API reference of every service")]
    links += [(path[1:], text) for path, text in _PROCESS.items() if path in paths]
    parts.append(f"<h2>The process</h2>\n{_row(links)}")
    return _route("/", "Keyhouse", parts, root="", about="The services that run here.")


def service_route(section: Section, sections: Sequence[Section]) -> Route:
    """Return the route of the page of a service that has no other."""
    name = section.name
    links = _api_links(section, "")
    if any(each.name == "studio" for each in sections):
        links.append((f"../studio/{name}/", "Stored data, in the Studio (for operators)"))
    links.append(("../", "All services"))
    parts = [f"<p>{html.escape(section.about)}</p>"] if section.about else []
    parts.append(_row(links))
    if section.examples:
        parts += [_commands(section), _HINT]
    title = section.title or name
    return _route(f"/{name}/", title, parts, root="../", about="What this service is.")


def has_page(section: Section) -> bool:
    """Return whether the service itself has a page."""
    return any(route.path == "/" and route.method == "GET" for route in section.routes)


def _route(path: str, title: str, parts: list[str], *, root: str, about: str) -> Route:
    text = _PAGE.format(title=html.escape(title), content="\n".join(parts), root=root)
    return hosted_page_route(path, text.encode(), about, address=_ADDRESS)


def _card(section: Section) -> str:
    name = section.name
    first = (f"{name}/", "Open the page" if has_page(section) else "What to do with it")
    parts = [f'<li class="card"><h3>{html.escape(section.title or name)}</h3>']
    if section.about:
        parts.append(f"<p>{html.escape(section.about)}</p>")
    parts.append(_row([first, *_api_links(section, f"{name}/")]))
    if section.examples:
        parts.append(_commands(section))
    return "\n".join([*parts, "</li>"])


def _api_links(section: Section, prefix: str) -> list[tuple[str, str]]:
    if not any(route.listed for route in section.routes):
        return []
    return [(f"{prefix}docs", "API reference"), (f"{prefix}openapi.json", "OpenAPI")]


def _row(links: list[tuple[str, str]]) -> str:
    items = " ".join(
        f'<a href="{html.escape(path)}">{html.escape(text)}</a>' for path, text in links
    )
    return f'<p class="row">{items}</p>'


def _commands(section: Section) -> str:
    commands = html.escape("\n".join(section.examples))
    return f'<p>Try:</p>\n<pre tabindex="0">{commands}</pre>'
