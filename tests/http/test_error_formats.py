"""Each error format holds for every status, those of the HTTP layer included, and in OpenAPI."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from keyhouse.auth import Authenticator, Caller, HeaderPairs
from keyhouse.errors import RateError, TokenError, UnavailableError
from keyhouse.http import NESTED, PROBLEM, App, ErrorFormat, HttpSettings, Route, make_app
from keyhouse.http.errors import HeadError
from keyhouse.service.spec import ServiceSpec
from tests.http.support.asgi_client import ask


class Received(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def asked(
    app: App, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Received:
    response = ask(app, method, path, body, headers)
    return Received(response.status, dict(response.headers), response.body)


FORMATS = [PROBLEM, NESTED]
PANEL = "https://panel.example"


class AnyToken(Authenticator):
    @property
    def schemes(self) -> Mapping[str, Mapping[str, Any]]:
        return {"bearer": {"type": "http", "scheme": "bearer"}}

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        if not any(name == b"authorization" for name, _ in headers):
            raise TokenError("There is no token.")
        return Caller(tenant="ann", scopes=frozenset({"read"}))


async def item(name: str, caller: Caller) -> dict[str, str]:
    """Return an item.

    Its name decides what happens.
    """
    match name:
        case "limited":
            raise RateError("Too many requests.", retry_after=7)
        case "away":
            raise UnavailableError("The database is away.", server="secret")
        case "broken":
            raise ZeroDivisionError("secret")
    return {"name": name}


async def write(body: dict[str, int], caller: Caller) -> None:
    """Accept numbers."""


def service(error_format: ErrorFormat, name: str = "demo") -> ServiceSpec:
    return ServiceSpec(
        name=name,
        auth=AnyToken(),
        error_format=error_format,
        routes=[
            Route(method="GET", path="/items/{name}", handler=item, scope="read"),
            Route(method="POST", path="/items", handler=write, scope="read", body_bytes_max=100),
            Route(method="PUT", path="/items", handler=write, scope="write"),
        ],
    )


def app_with(*specs: ServiceSpec) -> App:
    return make_app(specs, settings=HttpSettings(cors_origins=(PANEL,), access_log="off"))


def content(response: Received, error_format: ErrorFormat) -> tuple[str, str, dict[str, Any]]:
    """Return code, sentence and fields of a body, after checking its form."""
    assert response.headers["content-type"] == error_format.media_type
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["access-control-allow-origin"] == PANEL
    body = json.loads(response.body)
    if error_format is NESTED:
        assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "details"}
        return body["error"]["code"], body["error"]["message"], body["error"]["details"]
    assert body["status"] == response.status
    assert body["requestId"] == response.headers["x-request-id"]
    return body["code"], body["detail"], body.get("fields", {})


JSON = {"content-type": "application/json"}
REQUESTS: list[tuple[int, str, str, str, dict[str, str], bytes]] = [
    (400, "VALIDATION_ERROR", "GET", "/demo/items/x?a=b", {}, b""),
    (400, "VALIDATION_ERROR", "POST", "/demo/items", JSON, b"{"),
    (400, "VALIDATION_ERROR", "GET", "/demo/%ff", {}, b""),
    (401, "UNAUTHORIZED", "GET", "/demo/items/x", {"authorization": ""}, b""),
    (403, "FORBIDDEN", "PUT", "/demo/items", JSON, b"{}"),
    (404, "NOT_FOUND", "GET", "/demo/nothing/here", {}, b""),
    (405, "METHOD_NOT_ALLOWED", "DELETE", "/demo/items", {}, b""),
    (406, "NOT_ACCEPTABLE", "GET", "/demo/items/x", {"accept": "text/html"}, b""),
    (413, "VALUE_TOO_LARGE", "POST", "/demo/items", JSON, b'{"a": 1}' + b" " * 100),
    (415, "UNSUPPORTED_MEDIA_TYPE", "POST", "/demo/items", {"content-type": "text/plain"}, b"{}"),
    (422, "VALIDATION_ERROR", "POST", "/demo/items", JSON, b'{"a": "b"}'),
    (429, "RATE_LIMITED", "GET", "/demo/items/limited", {}, b""),
    (500, "INTERNAL_ERROR", "GET", "/demo/items/broken", {}, b""),
    (503, "DATABASE_ERROR", "GET", "/demo/items/away", {}, b""),
]


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("status", "code", "method", "path", "headers", "body"),
    REQUESTS,
    ids=[f"{status} {method} {path}" for status, _, method, path, *_ in REQUESTS],
)
def test_every_status_has_the_format_of_the_service(
    error_format: ErrorFormat,
    status: int,
    code: str,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
) -> None:
    sent = {"origin": PANEL, "authorization": "Bearer x"} | headers
    sent = {name: value for name, value in sent.items() if value}
    response = asked(app_with(service(error_format)), method, path, sent, body)
    assert response.status == status
    found, sentence, _ = content(response, error_format)
    assert found == code and sentence
    assert "secret" not in response.body.decode()
    if status in (429, 503):
        assert response.headers["retry-after"] == ("7" if status == 429 else "1")
    if status == 405:
        assert response.headers["allow"] == "POST, PUT, OPTIONS"


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
def test_fields_of_a_callers_error_are_sent(error_format: ErrorFormat) -> None:
    sent = {"origin": PANEL, "authorization": "Bearer x", "content-type": "text/plain"}
    response = asked(app_with(service(error_format)), "POST", "/demo/items", sent, b"{}")
    assert content(response, error_format)[2] == {"sent": "text/plain"}


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
def test_requests_while_draining_have_the_format_of_the_service(error_format: ErrorFormat) -> None:
    app = app_with(service(error_format))
    asyncio.run(app.drain())
    response = asked(app, "GET", "/demo/items/x", {"origin": PANEL})
    assert response.status == 503
    assert content(response, error_format)[0] == "SHUTTING_DOWN"
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
def test_a_request_that_the_server_rejects_has_the_format_of_the_service(
    error_format: ErrorFormat,
) -> None:
    rejected = app_with(service(error_format)).reject(
        HeadError("The headers are too large.", limit=5),
        b"/demo/items/x",
        [(b"origin", PANEL.encode())],
    )
    assert isinstance(rejected.body, bytes)
    headers = {name.decode(): value.decode() for name, value in rejected.headers}
    response = Received(rejected.status, headers, rejected.body)
    assert content(response, error_format)[0] == "HEADERS_TOO_LARGE"


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
def test_a_rejected_preflight_has_the_format_of_the_service(error_format: ErrorFormat) -> None:
    sent = {"origin": "https://evil.example", "access-control-request-method": "GET"}
    response = asked(app_with(service(error_format)), "OPTIONS", "/demo/items/x", sent)
    assert response.status == 403
    assert response.headers["content-type"] == error_format.media_type
    assert b"http.cors_origins" in response.body


def test_services_with_different_formats_share_an_app() -> None:
    app = app_with(*(service(each, each.name) for each in FORMATS))
    for error_format in FORMATS:
        response = asked(app, "GET", f"/{error_format.name}/nothing", {"origin": PANEL})
        assert content(response, error_format)[0] == "NOT_FOUND"
    for path in ("/nothing", "/", "/nestedly/x"):  # below no service
        response = asked(app, "PUT", path, {"origin": PANEL})
        assert response.headers["content-type"] == PROBLEM.media_type


def test_a_service_at_the_root_has_its_format_everywhere() -> None:
    app = make_app([service(NESTED)], settings=HttpSettings(cors_origins=(PANEL,)), alone=True)
    for path in ("/nothing", "/", "/demo/items/x"):
        response = asked(app, "PATCH", path, {"origin": PANEL})
        assert content(response, NESTED)[0] == "NOT_FOUND"


@pytest.mark.parametrize("error_format", FORMATS, ids=lambda each: each.name)
def test_the_openapi_document_has_the_format(error_format: ErrorFormat) -> None:
    response = asked(app_with(service(error_format)), "GET", "/demo/openapi.json")
    document = json.loads(response.body)
    name = error_format.body.__name__
    assert name in document["components"]["schemas"]
    others = {each.body.__name__ for each in FORMATS if each is not error_format}
    assert not others & set(document["components"]["schemas"])
    responses = document["components"]["responses"]
    assert {each[:3] for each in responses} >= {"400", "401", "403", "404", "406", "500", "503"}
    for each in responses.values():
        [(media_type, described)] = each["content"].items()
        assert media_type == error_format.media_type
        assert described["schema"] == {"$ref": f"#/components/schemas/{name}"}
        assert described["example"]
