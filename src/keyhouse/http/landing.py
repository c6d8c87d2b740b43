"""The page at `/`: the services that run here, and what to try with each."""

import html
from collections.abc import Sequence
from typing import Final

from keyhouse.http.endpoint import Section
from keyhouse.http.router import Route
from keyhouse.http.static import hosted_page_route

__all__ = ["landing_route"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Keyhouse</title>
<link rel="icon" href="assets/icon.svg">
<link rel="stylesheet" href="assets/pages.css">
</head>
<body>
<main>
<h1>Keyhouse</h1>
<p>These services run here:</p>
<ul class="cards">
{services}
</ul>
<h2>The process</h2>
<p class="row">{process}</p>
</main>
</body>
</html>
"""


_ADDRESS: Final = "127.0.0.1:8080"
"""The address of a service in its examples, in place of which the page has its own."""

_PROCESS: Final = {"/ready": "Readiness", "/health": "Health", "/metrics": "Metrics"}


def landing_route(sections: Sequence[Section], routes: Sequence[Route] = ()) -> Route:
    """Return the route of the page. `routes` are those of the process itself. Links are relative,
    because the app may be mounted anywhere."""
    services = "\n".join(map(_service, sections))
    paths = {route.path for route in routes}
    links = [("docs", "API reference of every service")]
    links += [(path[1:], text) for path, text in _PROCESS.items() if path in paths]
    process = "\n".join(f'<a href="{path}">{text}</a>' for path, text in links)
    body = _PAGE.format(services=services, process=process).encode()
    return hosted_page_route("/", body, "The services that run here.", address=_ADDRESS)


def _service(section: Section) -> str:
    name = html.escape(section.name)
    links = []
    if any(route.path == "/" and route.method == "GET" for route in section.routes):
        links.append(f'<a href="{name}/">Open the page</a>')
    if any(route.listed for route in section.routes):
        links.append(f'<a href="{name}/docs">API reference</a>')
        links.append(f'<a href="{name}/openapi.json">OpenAPI</a>')
    parts = [f'<li class="card"><h2>{html.escape(section.title or section.name)}</h2>']
    if section.about:
        parts.append(f"<p>{html.escape(section.about)}</p>")
    if links:
        parts.append(f'<p class="row">{" ".join(links)}</p>')
    if section.examples:
        examples = html.escape("\n".join(section.examples))
        parts.append(f'<p>Try:</p>\n<pre tabindex="0">{examples}</pre>')
    return "\n".join([*parts, "</li>"])
