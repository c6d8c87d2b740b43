"""The page at `/`: the services that run here, and what to try with each."""

import html
from collections.abc import Sequence

from keyhouse.http.endpoint import Section
from keyhouse.http.router import Route
from keyhouse.http.static import page_route

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
<p class="row"><a href="docs">API reference of every service</a> <a href="ready">Readiness</a>
<a href="health">Health</a> <a href="metrics">Metrics</a></p>
</main>
</body>
</html>
"""


def landing_route(sections: Sequence[Section]) -> Route:
    """Return the route of the page. Links are relative, because the app may be mounted anywhere."""
    services = "\n".join(map(_service, sections))
    body = _PAGE.format(services=services).encode()
    return page_route("/", body, "The services that run here.")


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
