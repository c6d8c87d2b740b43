"""The OpenAPI document describes every response."""

import gzip
import hashlib
import json
import re
from typing import Any, Generic, TypeVar

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema_rs import validator_for
from schemathesis.specs.openapi.checks import positive_data_acceptance

from keyhouse.http import HttpSettings, Route, make_app
from keyhouse.http.static import ASSETS
from keyhouse.service.spec import ServiceSpec
from tests.http.support.asgi_client import ask
from tests.http.support.shop import shop
from tests.sizes import size

APP = make_app([shop()])
DOCUMENT: Any = ask(APP, "GET", "/shop/openapi.json").json()


def resolved(part: Any) -> Any:
    if isinstance(part, dict) and "$ref" in part:
        found = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return found
    return part


def operations() -> list[tuple[str, str, Any]]:
    return [
        (path, method, each)
        for path, methods in DOCUMENT["paths"].items()
        for method, each in methods.items()
    ]


def test_the_document_has_a_title_and_a_server() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["title"] == "The shop"
    assert DOCUMENT["servers"] == [{"url": "/shop"}]


def test_every_route_has_a_summary_and_a_unique_id() -> None:
    found = operations()
    assert {(method.upper(), path) for path, method, _ in found} == {
        (route.method, route.path) for route in shop().routes
    }
    assert all(operation["summary"] for _, _, operation in found)
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)


def test_every_example_matches_its_schema() -> None:
    components = {"components": DOCUMENT["components"]}
    count = 0
    for _, _, operation in operations():
        for part in [
            operation.get("requestBody", {}),
            *map(resolved, operation["responses"].values()),
        ]:
            for content in part.get("content", {}).values():
                if "example" in content:
                    validator_for({**content["schema"], **components}).validate(content["example"])
                    count += 1
    assert count > 20


def test_every_reference_resolves() -> None:
    for reference in re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(DOCUMENT)):
        assert resolved({"$ref": reference})


T = TypeVar("T")


class Wrapped(msgspec.Struct, Generic[T]):
    data: T


class Part(msgspec.Struct):
    name: str


async def wrapped() -> Wrapped[Wrapped[Part]]:
    """Return a part."""
    raise NotImplementedError


def test_generic_types_are_named_without_their_modules() -> None:
    """A list of keys was `Data_keyhouse_audiobooks.library.Items_keyhouse_audiobooks.records.…`,
    and so was the class in every generated client."""
    routes = [Route(method="GET", path="/parts", handler=wrapped)]
    app = make_app([ServiceSpec(name="parts", routes=routes)])
    document = ask(app, "GET", "/parts/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {"Wrapped_Wrapped_Part", "Wrapped_Part", "Part"} <= {*schemas}
    outer = schemas["Wrapped_Wrapped_Part"]
    assert outer["title"] == "Wrapped[Wrapped[Part]]"
    assert outer["properties"]["data"] == {"$ref": "#/components/schemas/Wrapped_Part"}


async def either() -> Part:
    """Return a part, alone or wrapped."""
    raise NotImplementedError


def test_a_reply_may_be_one_of_several_structs() -> None:
    """msgspec has no schema for their union, so such a reply had no type."""
    replies = {200: Wrapped[Part] | Part}
    routes = [Route(method="GET", path="/parts", handler=either, replies=replies)]
    app = make_app([ServiceSpec(name="parts", routes=routes)])
    document = ask(app, "GET", "/parts/openapi.json").json()
    reply = document["paths"]["/parts"]["get"]["responses"]["200"]
    names = ("Wrapped_Part", "Part")
    assert reply["content"]["application/json"]["schema"] == {
        "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]
    }


def test_a_route_with_a_scope_lists_its_security_and_errors() -> None:
    operation = DOCUMENT["paths"]["/mine"]["post"]
    assert operation["security"] == [{"bearer": ["write"]}]
    assert {"401", "403"} <= set(operation["responses"])
    assert DOCUMENT["paths"]["/echo"]["post"]["security"] == []


def test_the_document_names_the_license() -> None:
    assert DOCUMENT["info"]["license"] == {"name": "MIT", "identifier": "MIT"}


def test_default_examples_of_the_page_are_valid_requests() -> None:
    """Path fields had no type, and optional members had `null` or an unknown etag as example, so
    that the example request was rejected."""
    parameters = [
        each for _, _, operation in operations() for each in operation.get("parameters", ())
    ]
    assert parameters
    for each in parameters:
        assert {"type", "anyOf", "$ref"} & each["schema"].keys() and "null" not in json.dumps(
            each
        ), each
        assert each["in"] != "header" or "example" not in each
    kind = next(each for each in parameters if each["name"] == "kind")
    assert kind["schema"] == {"enum": ["drinks", "foods"], "type": "string"}


def test_conditions_parameters_and_headers_are_listed() -> None:
    put = DOCUMENT["paths"]["/things/{kind}/{id}"]["put"]
    assert {(each["in"], each["name"]) for each in put["parameters"]} == {
        ("path", "kind"),
        ("path", "id"),
        ("header", "If-Match"),
        ("header", "If-None-Match"),
    }
    assert {"200", "201", "412", "413", "415", "422"} <= set(put["responses"])
    assert "304" in DOCUMENT["paths"]["/things/{kind}/{id}"]["get"]["responses"]


schema = schemathesis.openapi.from_asgi("/shop/openapi.json", make_app([shop()]))


@schema.exclude(path="/fail/{how}").parametrize()
@settings(max_examples=size(8, 15, 1_000), suppress_health_check=list(HealthCheck), deadline=None)
def test_no_response_is_undocumented(case: schemathesis.Case[Any]) -> None:
    conditional = {"If-Match", "If-None-Match"} & set(case.headers or ())
    excluded: list[Any] = (
        [positive_data_acceptance] if conditional else []
    )  # it does not know that 412 does not reject the data
    case.call_and_validate(
        headers={"Authorization": "Bearer ann:read,write"}, excluded_checks=excluded
    )


# The page


def test_the_page_shows_the_document_and_fetches_nothing_from_elsewhere() -> None:
    for path, document in (("/docs", "shop/openapi.json"), ("/shop/docs", "openapi.json")):
        page = ask(APP, "GET", path)
        assert (page.status, page.header("content-type")) == (200, "text/html; charset=utf-8")
        assert f'data-document="{document}"'.encode() in page.body
        assert b"//" not in page.body.replace(b"<!doctype html>", b"")
        policy = page.header("content-security-policy") or ""
        assert "default-src 'none'" in policy and "script-src 'self';" in policy


def test_the_root_names_the_services_and_links_to_their_references() -> None:
    page = ask(APP, "GET", "/")
    assert (page.status, page.header("content-type")) == (200, "text/html; charset=utf-8")
    assert b'href="shop/docs"' in page.body and b'href="docs"' in page.body


@pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "swagger-ui.css", "docs.js"])
def test_a_static_file_is_compressed_on_request_and_cached(name: str) -> None:
    plain = ask(APP, "GET", f"/docs/{name}")
    packed = ask(APP, "GET", f"/docs/{name}", headers={"Accept-Encoding": "br, gzip"})
    refused = ask(APP, "GET", f"/docs/{name}", headers={"Accept-Encoding": "gzip;q=0"})
    assert refused.header("content-encoding") is None and refused.body == plain.body
    if packed.header("content-encoding") == "gzip":
        assert gzip.decompress(packed.body) == plain.body
    again = ask(APP, "GET", f"/docs/{name}", headers={"If-None-Match": plain.header("etag") or ""})
    assert again.status == 304


def test_a_packaged_file_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients without a token that do not accept gzip held up all others, 10 ms at a time."""
    calls: list[int] = []
    decompress = gzip.decompress

    def counted(data: bytes) -> bytes:
        calls.append(len(data))
        return decompress(data)

    monkeypatch.setattr(gzip, "decompress", counted)
    app = make_app([shop()])
    bodies = {ask(app, "GET", "/docs/swagger-ui-bundle.js").body for _ in range(3)}
    assert len(bodies) == 1 and len(calls) == 1


def test_the_files_of_swagger_ui_match_its_release() -> None:
    """swagger-ui-dist 5.34.1, unchanged, with its licence."""
    known = {
        "swagger-ui-bundle.js": "36eeb4d5640b9c036b1d0f854499af1cceebbdb260b790a03a18be5e8488fbf5",
        "swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
    }
    for name, digest in known.items():
        assert (
            hashlib.sha256(gzip.decompress((ASSETS / f"{name}.gz").read_bytes())).hexdigest()
            == digest
        )
    assert "Apache License" in (ASSETS / "swagger-ui.LICENSE").read_text()


def test_the_page_can_be_disabled() -> None:
    app = make_app([shop()], settings=HttpSettings(docs=False))
    assert [
        ask(app, "GET", path).status for path in ("/docs", "/shop/docs", "/shop/openapi.json")
    ] == [404] * 3
