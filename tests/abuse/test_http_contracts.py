"""Rules of HTTP that every route of every system follows, read from the running services: their
routing tables and OpenAPI documents. New routes are covered without a line here. No test is marked
`long`, so that one worker has them all, and starts one service."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from keyhouse.service.registry import has_service, system_names
from tests.abuse import routes
from tests.abuse.support.server import ServerProcess

SYSTEMS = [name for name in system_names() if has_service(name)]
SCHEMAS = {"recipes": "tests.service.schema_service.support.recipes:BOX"}

OPEN_BODIES = {
    "streamkit PUT /configs/{type}/{id}: body": "configs keep unknown members",
    "streamkit POST /configs/{type}: body": "configs keep unknown members",
    "streamkit POST /import: Item": "items of other tools, which have more members",
    "recipes PATCH": "the record decides, and names the nearest member: test_schema_unknown",
}
"""Bodies that may have unknown members, by the start of their name, with the reason."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("contracts")
    with ServerProcess(folder, *SYSTEMS, *SCHEMAS.values(), **routes.TABLES) as served:
        yield served


def _open_objects(schema: Any, components: Any, at: str, seen: set[str]) -> Iterator[str]:
    """Yield the places of objects with named members that allow others too."""
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        if name not in seen:
            yield from _open_objects(components[name], components, name, {*seen, name})
        return
    if schema.get("properties") and schema.get("additionalProperties", True) is not False:
        yield at
    for name, part in schema.get("properties", {}).items():
        yield from _open_objects(part, components, f"{at}.{name}", seen)
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word, ()):
            yield from _open_objects(part, components, at, seen)
    yield from _open_objects(schema.get("items"), components, f"{at}[]", seen)


@pytest.mark.parametrize("system", [*SYSTEMS, *SCHEMAS])
def test_every_body_rejects_unknown_members(server: ServerProcess, system: str) -> None:
    """PUT of a book ignored `author_name`, and cleared the author."""
    reply = httpx.get(f"{server.http}/{system}/openapi.json", timeout=60)
    if system == "rosey":  # it has no HTTP API
        return
    document = reply.raise_for_status().json()
    components = document.get("components", {}).get("schemas", {})
    bodies = [
        (f"{method.upper()} {path}", content.get("schema"))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if kind == "application/json"
    ]
    assert bodies
    found = {
        f"{system} {route}: {place}"
        for route, schema in bodies
        for place in _open_objects(schema, components, "body", set())
    }
    assert {each for each in found if not each.startswith(tuple(OPEN_BODIES))} == set()


@pytest.mark.parametrize("system", [*SYSTEMS, *SCHEMAS, "studio", ""])
def test_every_etag_is_honoured(server: ServerProcess, system: str) -> None:
    """A book had an ETag, and a request with it in If-None-Match got the whole book again."""
    calls = [call for call in routes.route_calls(server, system) if call.method == "GET"]
    routes.prepare(server, calls)
    tagged = 0
    with httpx.Client(base_url=server.http, timeout=60) as client:
        for call in calls:
            headers = call.head()
            del headers["Host"]
            with client.stream("GET", call.path, headers=headers) as first:
                tag = first.headers.get("etag")
            if first.status_code != 200 or tag is None:
                continue
            again = client.get(call.path, headers={**headers, "If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b""), call.path
            other = client.get(call.path, headers={**headers, "If-None-Match": '"other"'})
            assert other.status_code == 200, call.path
            tagged += 1
    if system in ("audiobooks", "streamkit", "studio"):
        assert tagged, "the calls reach records with an ETag"
