"""Every route of a running service with all systems, a served schema and the Studio: what leaves it
has no private member, misspelled parameters are named, and documents suit every generator. No test
is marked `long`, so that one worker has them all, and starts one service.

Routes are those of its routing table, so that a new one is called without being listed here.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import nats
import pytest

from keyhouse import KeyRing
from keyhouse.service.registry import has_service, load_system, system_names
from keyhouse.studio.schema import SCHEMA as STUDIO
from tests.abuse import routes
from tests.abuse.support.server import SECRET, ServerProcess

SYSTEMS = [name for name in system_names() if has_service(name)]
SCHEMAS = ("tests.service.schema_service.support.recipes:BOX", "tests.support.planted:VAULT")
READ_SECONDS = 5
PRIVATE_CHARS_MIN = 12
"""Shorter values may be found by chance."""


class Running(NamedTuple):
    """The routing table of a service, its OpenAPI documents, all responses, and the values that
    were stored in private members."""

    table: list[dict[str, Any]]
    documents: dict[str, Any]
    responses: list[tuple[str, bytes]]
    private: set[str]
    log: bytes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Running:
    folder = tmp_path_factory.mktemp("every")
    ring = folder / "ring.json"
    planted = {"jwt_secret": SECRET, "key_ring": _key_ring(ring)}
    tables = {**routes.TABLES, "vault": planted}
    with ServerProcess(folder, *SYSTEMS, *SCHEMAS, **tables) as server:
        table = server.routes
        responses: list[tuple[str, bytes]] = []
        with httpx.Client(
            base_url=server.http, timeout=READ_SECONDS, verify=False, trust_env=False
        ) as client:
            for system in sorted(routes.served_systems(server)):
                for call in routes.route_calls(server, system):
                    responses.append((f"{call.method} {call.path}", _sent(client, call)))
        names = sorted(routes.served_systems(server) - {""})
        documents = {}
        for name in names:
            reply = httpx.get(f"{server.http}/{name}/openapi.json", timeout=60)
            responses.append((f"{name}/openapi.json", reply.content))
            if reply.status_code == 200:
                documents[name] = reply.json()
        private = asyncio.run(_private_in_buckets(server.nats_of("playlist")))
    for path in (folder / "data").rglob("*.db"):
        if path.read_bytes()[:6] == b"SQLite":
            private |= {*_private_in_file(path)}
    return Running(table, documents, responses, private, server.log.read_bytes())


def _key_ring(path: Path) -> str:
    KeyRing.new().save(path)
    return str(path)


def _sent(client: httpx.Client, call: routes.RouteCall) -> bytes:
    """Return the head and the body of a response; of a stream, the head alone."""
    head = {name: value for name, value in call.head().items() if name != "Content-Length"}
    request = client.build_request(call.method, call.path, headers=head, content=call.body)
    with contextlib.suppress(httpx.ReadTimeout):
        reply = client.send(request, stream=True)
        with contextlib.closing(reply):
            first = f"{reply.status_code} {reply.headers}".encode()
            is_stream = "text/event-stream" in reply.headers.get("content-type", "")
            return first if is_stream else first + b"\n" + reply.read()
    return b""


# Private members: whatever is stored under the name of one


def _private_names() -> frozenset[str]:
    schemas = [schema for name in SYSTEMS for schema in load_system(name).schemas] + [STUDIO]
    return frozenset(
        record.json.member(attribute)
        for schema in schemas
        for record in schema.records
        for attribute in record.private
    )


def _private_values(stored: bytes) -> Iterator[str]:
    try:
        plain = json.loads(stored)
    except ValueError:
        return
    if isinstance(plain, dict):
        for name in _private_names() & plain.keys():
            parts = plain[name]
            parts = [*parts.values()] if isinstance(parts, dict) else parts
            for each in parts if isinstance(parts, list) else [parts]:
                if isinstance(each, str) and len(each) >= PRIVATE_CHARS_MIN:
                    yield each


def _private_in_file(path: Path) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        )
        for (table,) in found.fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for cell in row:
                    if isinstance(cell, (bytes, str)):
                        yield from _private_values(
                            cell if isinstance(cell, bytes) else cell.encode()
                        )


async def _private_in_buckets(url: str) -> set[str]:
    client = await nats.connect(url)
    try:
        context = client.jetstream()
        private: set[str] = set()
        for stream in await context.streams_info():
            name = stream.config.name or ""
            if name.startswith("KV_"):
                bucket = await context.key_value(name.removeprefix("KV_"))
                with contextlib.suppress(nats.js.errors.NoKeysError):
                    for key in await bucket.keys():
                        with contextlib.suppress(nats.js.errors.KeyNotFoundError):
                            private |= {*_private_values((await bucket.get(key)).value or b"")}
        return private
    finally:
        await client.close()


def test_no_route_of_a_system_shows_a_private_member(running: Running) -> None:
    assert len(running.private) >= 3, "passwords, tokens and codes were stored"
    assert len(running.responses) > 200
    leaks = [
        f"{what}: {value}"
        for value in sorted(running.private)
        for what, data in [*running.responses, ("the log", running.log)]
        if value.encode() in data
    ]
    assert not leaks


def test_every_route_names_the_parameter_that_a_request_misspells(running: Running) -> None:
    """`?limt=3` reported that no index serves the request."""
    reported = {
        (route["method"], route["path"], name): near
        for route in running.table
        for name, near in route["typos"].items()
        if near != "accepted"
    }
    assert len(reported) > 50
    assert {each: near for each, near in reported.items() if near != each[2]} == {}


# OpenAPI


_SCHEMAS = {"items", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_MAPS = {"properties", "patternProperties", "schemas", "$defs"}


def boolean_schemas(part: Any, path: str = "") -> Iterator[str]:
    """Yield the places of boolean schemas, which some generators of clients do not know."""
    if isinstance(part, list):
        for at, each in enumerate(part):
            yield from boolean_schemas(each, f"{path}/{at}")
    if not isinstance(part, dict):
        return
    for name, each in part.items():
        place = f"{path}/{name}"
        if name in ("example", "examples", "default", "enum", "const"):
            continue
        inner = [each] if name in _SCHEMAS | {"schema"} and "/properties" not in path[-11:] else []
        if name in _LISTS and isinstance(each, list):
            inner = each
        if name in _MAPS and isinstance(each, dict):
            inner = [*each.values()]
        if any(isinstance(schema, bool) for schema in inner):
            yield place
        yield from boolean_schemas(each, place)


def test_no_openapi_document_has_a_boolean_schema(running: Running) -> None:
    """openapi-python-client refused every served schema, because of `"items": false`."""
    assert {*SYSTEMS} - {"rosey"} <= running.documents.keys() and "vault" in running.documents
    found = {
        f"{name}{at}" for name, each in running.documents.items() for at in boolean_schemas(each)
    }
    assert not found


# Errors


def test_no_error_of_a_route_has_a_python_repr(running: Running) -> None:
    for what, data in running.responses:
        head, _, body = data.partition(b"\n")
        if b"json" not in head or not head.startswith((b"4", b"5")):
            continue
        for text in _texts(json.loads(body)):
            assert not text.startswith(("{'", "['", "datetime.", "<")), f"{what}: {text}"


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for each in part.values() if isinstance(part, dict) else part:
            yield from _texts(each)
