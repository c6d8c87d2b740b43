"""Routes respond by their types: values in, values out, and a problem document for every error."""

import asyncio
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.routing import Mount

from keyhouse.auth import Caller
from keyhouse.clock import ManualClock
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.http import HttpSettings, Response, Route, make_app
from keyhouse.http.limits import HTTP_BODY_BYTES_PER_REQUEST
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings import read_settings
from tests.http.support.asgi_client import ask, asking
from tests.http.support.shop import shop

# Values


def test_a_value_is_written_and_read_with_its_etag() -> None:
    app = make_app([shop()])
    made = ask(app, "PUT", "/shop/things/drinks/tea", b'{"name":"tea","price":3}')
    assert made.status == 201
    assert made.header("location") == "/shop/drinks/tea"
    read = ask(app, "GET", "/shop/things/drinks/tea")
    assert (read.status, read.json(), read.header("etag")) == (
        200,
        {"name": "tea", "price": 3},
        '"1"',
    )
    assert read.header("content-type") == "application/json"
    assert read.header("content-length") == str(len(read.body))


def test_none_is_204_without_a_body() -> None:
    answered = ask(make_app([shop()]), "DELETE", "/shop/things/drinks/tea")
    assert (answered.status, answered.body, answered.header("content-type")) == (204, b"", None)


def test_the_longest_text_of_a_path_matches_first() -> None:
    answered = ask(
        make_app([shop()]), "POST", "/shop/things/drinks:batch", b'[{"name":"tea"},{"name":"beer"}]'
    )
    assert (answered.status, answered.json()) == (200, {"count": 2})


def test_head_is_get_without_its_body() -> None:
    app = make_app([shop()])
    ask(app, "PUT", "/shop/things/drinks/tea", b'{"name":"tea"}')
    head, get = (ask(app, method, "/shop/things/drinks/tea") for method in ("HEAD", "GET"))
    assert (head.status, head.body) == (200, b"")
    body = [
        {name: value for name, value in each.headers if name != "x-request-id"}
        for each in (head, get)
    ]
    assert body[0] == body[1]


def test_a_stream_comes_in_pieces() -> None:
    app = make_app([shop()])
    answered = ask(app, "GET", "/shop/export")
    assert (answered.status, answered.body, answered.pieces) == (200, b"0\n1\n2\n", 4)
    assert answered.header("content-type") == "text/plain; charset=utf-8"
    assert answered.header("x-content-type-options") == "nosniff"
    assert ask(app, "HEAD", "/shop/export").body == b""


# Problems


@pytest.mark.parametrize(
    "path", ["/shop", "/shop/", "/shop/things/drinks/", "/things/drinks", "/shop//echo", "/docz"]
)
def test_an_unknown_path_is_404(path: str) -> None:
    answered = ask(make_app([shop()]), "GET", path)
    assert (answered.status, answered.json()["code"]) == (404, "NOT_FOUND")
    assert answered.header("content-type") == "application/problem+json"


def test_another_method_is_405_with_the_allowed_ones() -> None:
    app = make_app([shop()])
    refused = ask(app, "PATCH", "/shop/things/drinks/tea")
    assert (refused.status, refused.header("allow")) == (405, "GET, PUT, DELETE, HEAD, OPTIONS")
    assert ask(app, "TRACE", "/shop/things/drinks/tea").status == 405
    asked = ask(app, "OPTIONS", "/shop/things/drinks/tea")
    assert (asked.status, asked.header("allow")) == (204, "GET, PUT, DELETE, HEAD, OPTIONS")


def test_an_error_is_a_problem_document_by_its_class() -> None:
    answered = ask(
        make_app([shop()]), "GET", "/shop/fail/conflict", headers={"X-Request-Id": "r-1"}
    )
    document = answered.json()
    assert document.pop("fields")["id"] == "x"
    assert document == {
        "type": "urn:keyhouse:error:conflict",
        "title": "Conflict",
        "status": 409,
        "detail": "It is taken.",
        "code": "CONFLICT",
        "requestId": "r-1",
    }


@pytest.mark.parametrize(("how", "status"), [("bug", 500), ("engine", 503), ("data", 500)])
def test_an_internal_error_sends_only_the_request_id_that_is_in_the_log(
    how: str, status: int
) -> None:
    with structlog.testing.capture_logs() as lines:
        answered = ask(make_app([shop()]), "GET", f"/shop/fail/{how}?")
    assert answered.status == status
    for secret in (b"hunter2", b"somebody", b"Traceback", b"RuntimeError"):
        assert secret not in answered.body
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["id"] == answered.json()["requestId"] == answered.header("x-request-id")
    assert (answered.header("retry-after") == "1") is (status == 503)


def test_a_traceback_is_logged_without_variables() -> None:
    with structlog.testing.capture_logs() as lines:
        ask(
            make_app([shop()]),
            "GET",
            "/shop/fail/bug",
            headers={"Authorization": "Bearer the-token"},
        )
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert "RuntimeError" in line["trace"] and "the-token" not in str(lines)


# Ids, headers, log, metrics


def test_every_response_has_security_headers_and_a_unique_id() -> None:
    app = make_app([shop()])
    ids = set()
    for path in ("/shop/things/drinks", "/nothing", "/shop/fail/bug", "/shop/export", "/docs"):
        answered = ask(app, "GET", path)
        assert answered.header("x-content-type-options") == "nosniff"
        assert answered.header("x-frame-options") == "DENY"
        ids.add(answered.header("x-request-id"))
    assert len(ids) == 5 and None not in ids


@pytest.mark.parametrize("wished", ["r-1", "0123456789abcdef", "a" * 64, "req_1.2:3/4+5=", "A"])
def test_a_valid_request_id_is_kept(wished: str) -> None:
    if "_" in wished:
        wished = wished.replace("_", "-")
    answered = ask(
        make_app([shop()]), "GET", "/shop/things/drinks", headers={"X-Request-Id": wished}
    )
    assert answered.header("x-request-id") == wished


@pytest.mark.parametrize(
    "wished", ["", " ", "a" * 65, "a b", "a\tb", "é", "-x", '"', "<script>", "a;b"]
)
def test_an_invalid_request_id_is_replaced(wished: str) -> None:
    answered = ask(
        make_app([shop()]), "GET", "/shop/things/drinks", headers={"X-Request-Id": wished}
    )
    assert answered.header("x-request-id") != wished


@pytest.mark.parametrize(("wanted", "lines"), [("all", 3), ("failed", 1), ("off", 0)])
def test_the_access_log_follows_its_setting(wanted: Any, lines: int) -> None:
    app = make_app([shop()], settings=HttpSettings(access_log=wanted))
    with structlog.testing.capture_logs() as logged:
        for path in ("/shop/things/drinks?after=secret", "/nothing", "/shop/fail/engine"):
            ask(app, "GET", path)
    found = [line for line in logged if line["event"] == "request"]
    assert len(found) == lines
    assert "secret" not in str(found), "a query may hold what is private"
    if wanted == "all":
        assert (found[0]["method"], found[0]["path"], found[0]["status"]) == (
            "GET",
            "/shop/things/drinks",
            200,
        )


def test_a_slow_request_is_always_logged() -> None:
    app = make_app([shop()], settings=HttpSettings(access_log="off", slow_seconds=1e-9))
    with structlog.testing.capture_logs() as logged:
        ask(app, "GET", "/shop/things/drinks")
    assert [(line["event"], line["log_level"]) for line in logged] == [("slow request", "warning")]


def test_requests_are_counted_by_template_and_never_by_path() -> None:
    registry = CollectorRegistry()
    app = make_app([shop()], registry=registry)
    for path in ("/shop/things/drinks/a", "/shop/things/drinks/b", "/no/such/1", "/no/such/2"):
        ask(app, "GET", path)
    page = generate_latest(registry).decode()
    labels = 'method="GET",route="/shop/things/{kind}/{id}",status="404"'
    assert f"keyhouse_http_request_seconds_count{{{labels}}} 2.0" in page
    assert 'route="unmatched",status="404"} 2.0' in page
    assert "keyhouse_http_in_flight 0.0" in page
    assert "/no/such" not in page and "drinks" not in page


# Callers


def test_a_route_with_a_scope_requires_a_token_with_it() -> None:
    app = make_app([shop()])
    missing = ask(app, "GET", "/shop/mine")
    assert (missing.status, missing.header("www-authenticate")) == (401, 'Bearer realm="shop"')
    unknown = ask(app, "GET", "/shop/mine", headers={"Authorization": "Bearer nobody"})
    assert unknown.header("www-authenticate") == 'Bearer realm="shop", error="invalid_token"'
    assert ask(app, "GET", "/shop/mine", headers={"Authorization": "Bearer ann:read"}).json() == {
        "tenant": "ann"
    }
    refused = ask(app, "POST", "/shop/mine", headers={"Authorization": "Bearer ann:read"})
    assert (refused.status, refused.json()["fields"]) == (403, {"needed": "write"})


def test_responses_to_tokens_are_private_to_caches() -> None:
    answered = ask(
        make_app([shop()]), "GET", "/shop/mine", headers={"Authorization": "Bearer ann:read"}
    )
    assert answered.header("cache-control") == "private, no-cache"


def test_a_tenant_is_rate_limited_and_others_are_not() -> None:
    clock = ManualClock()
    app = make_app([shop(RateLimiter(1, burst=2, clock=clock))])
    ann, bob = ({"Authorization": f"Bearer {name}:read"} for name in ("ann", "bob"))
    assert [ask(app, "GET", "/shop/mine", headers=ann).status for _ in range(3)] == [200, 200, 429]
    refused = ask(app, "GET", "/shop/mine", headers=ann)
    assert (refused.header("retry-after"), refused.json()["code"]) == ("1", "RATE_LIMITED")
    assert ask(app, "GET", "/shop/mine", headers=bob).status == 200
    assert ask(app, "GET", "/shop/things/drinks").status == 200
    clock.advance(seconds=1)
    assert ask(app, "GET", "/shop/mine", headers=ann).status == 200


def test_a_large_body_counts_as_many_requests_and_is_rejected_before_it_is_read() -> None:
    """Regression: it counted as one, so that a burst of a thousand requests buffered a thousand of
    the largest bodies.
    """

    async def keep(body: str, caller: Caller) -> None:
        pass

    clock = ManualClock()
    part = shop(RateLimiter(1, burst=10, clock=clock))
    part.routes = [Route(method="POST", path="/keep", handler=keep, scope="write")]
    app = make_app([part])
    ann = {"Authorization": "Bearer ann:write"}
    body = b'"' + b"x" * (6 * HTTP_BODY_BYTES_PER_REQUEST) + b'"'
    assert ask(app, "POST", "/shop/keep", body, ann).status == 204
    refused = ask(app, "POST", "/shop/keep", body, ann)
    assert (refused.status, refused.unread) == (429, 1)
    assert refused.header("retry-after") == "4", "three are left, and seven asked for"
    clock.advance(seconds=4)
    assert ask(app, "POST", "/shop/keep", body, ann).status == 204
    endless = ask(app, "POST", "/shop/keep", [body], ann | {"Transfer-Encoding": "chunked"})
    assert (endless.status, endless.header("retry-after")) == (429, "10"), (
        "it counts as the largest there may be"
    )


# The app as a whole


def test_a_service_can_be_mounted_in_another_server() -> None:
    own = Starlette(routes=[Mount("/api/v1", app=make_app([shop()], alone=True))])
    assert ask(own, "GET", "/api/v1/things/drinks").status == 200
    assert ask(own, "GET", "/api/v1/openapi.json").json()["servers"] == [{"url": "/api/v1"}]
    assert ask(own, "GET", "/api/v1/docs").status == 200
    assert ask(own, "GET", "/api/v1/shop/things/drinks").status == 404


def test_services_are_mounted_beside_each_other_and_beside_plain_routes() -> None:
    async def health() -> Response[bytes]:
        return Response(b"fine", media_type="text/plain")

    other = shop()
    other.name = "other"
    app = make_app([shop(), other], routes=[Route(method="GET", path="/health", handler=health)])
    assert [ask(app, "GET", f"/{name}/things/drinks").status for name in ("shop", "other")] == [
        200,
        200,
    ]
    assert ask(app, "GET", "/health").body == b"fine"


def test_a_server_without_raw_path_is_supported() -> None:
    answered = ask(make_app([shop()]), "GET", "/shop/things/drinks", raw_path=None)
    assert answered.status == 200


def test_draining_rejects_new_requests_and_finishes_those_in_flight() -> None:
    async def story() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> dict[str, int]:
            """Respond when released."""
            started.set()
            await go_on.wait()
            return {"done": 1}

        app = make_app(
            [ServiceSpec(name="x", routes=[Route(method="GET", path="/slow", handler=slow)])]
        )
        first = asyncio.create_task(asking(app, "GET", "/x/slow"))
        await started.wait()
        draining = asyncio.create_task(app.drain())
        await asyncio.sleep(0)
        refused = await asking(app, "GET", "/x/slow")
        assert (refused.status, refused.header("retry-after")) == (503, "1")
        assert refused.header("connection") == "close"
        assert not draining.done()
        go_on.set()
        assert (await first).json() == {"done": 1}
        await asyncio.wait_for(draining, 30)

    asyncio.run(story())


def test_a_drain_times_out() -> None:
    async def story() -> None:
        started = asyncio.Event()

        async def stuck() -> None:
            """Never respond."""
            started.set()
            await asyncio.Event().wait()

        settings = HttpSettings(drain_seconds=0.01)
        part = ServiceSpec(name="x", routes=[Route(method="GET", path="/stuck", handler=stuck)])
        app = make_app([part], settings=settings)
        task = asyncio.create_task(asking(app, "GET", "/x/stuck"))
        await started.wait()
        with structlog.testing.capture_logs() as lines:
            await app.drain()
        assert lines[0]["count"] == 1
        task.cancel()

    asyncio.run(story())


# Invalid declarations


def wrong(path: str = "/x", method: str = "GET", **named: Any) -> None:
    async def fine() -> None: ...

    make_app(
        [
            ServiceSpec(
                name="x", routes=[Route(method=method, path=path, **({"handler": fine} | named))]
            )
        ]
    )


async def untyped(x) -> None: ...  # type: ignore[no-untyped-def]
async def takes_more(y: str) -> None: ...
async def wants_body(body: str) -> None: ...
async def wants_caller(caller: Any) -> None: ...
async def flat_query(query: int) -> None: ...


@pytest.mark.parametrize(
    "named",
    [
        {"method": "FETCH"},
        {"path": "x"},
        {"path": "//x"},
        {"path": "/{x}"},
        {"path": "/{x}{y}"},
        {"path": "/{x", "handler": takes_more},
        {"path": "/{x}", "handler": untyped},
        {"path": "/x", "handler": takes_more},
        {"handler": wants_body},
        {"handler": wants_caller},
        {"handler": flat_query},
        {"scope": "read"},
    ],
    ids=lambda named: " ".join(
        getattr(part, "__name__", part) for part in named.values()
    ),  # the same in each process
)
def test_an_invalid_route_is_rejected_when_the_app_is_made(named: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        wrong(**named)


def test_two_routes_with_the_same_path_are_rejected() -> None:
    async def fine() -> None: ...

    twice = [Route(method="GET", path="/x", handler=fine)] * 2
    with pytest.raises(DeclarationError, match="same method and path"):
        make_app([ServiceSpec(name="x", routes=twice)])
    with pytest.raises(DeclarationError, match="single service"):
        make_app([shop(), shop()], alone=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"cors_origins": ("*",), "credentials": True},
        {"cors_origins": ("panel.example",)},
        {"cors_origins": ("https://panel.example/",)},
        {"body_bytes_max": 0},
        {"slow_seconds": 0},
        {"write_timeout_seconds": float("nan")},
        {"tenant_streams_max": -1},
        {"drain_seconds": -1},
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_settings(HttpSettings, settings, table="http")
