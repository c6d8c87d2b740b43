"""Bodies and parameters: valid values reach the handler, all others are rejected before it."""

import asyncio

import pytest

from keyhouse.auth import Caller
from keyhouse.clock import ManualClock
from keyhouse.errors import DocumentError, LimitError, RecordError
from keyhouse.http import HttpSettings, Route, decode_optional, make_app
from keyhouse.http.limits import HTTP_LARGE_BODY_VALUES_MAX
from keyhouse.http.signature import body_values_max
from keyhouse.limits import DOCUMENT_DEPTH_MAX
from keyhouse.requests.limits import REQUEST_VALUES_MAX
from keyhouse.service.rates import RateLimiter
from tests.http.support.asgi_client import Answered, ask, asking
from tests.http.support.shop import shop

APP = make_app([shop()], settings=HttpSettings(body_bytes_max=1_000))


def echo(body: bytes | list[bytes], **headers: str) -> Answered:
    return ask(
        APP,
        "POST",
        "/shop/echo",
        body,
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


# Sizes


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_rejected() -> None:
    assert echo(b'"' + b"x" * 998 + b'"').status == 200
    refused = echo(b'"' + b"x" * 999 + b'"')
    assert (refused.status, refused.json()["fields"], refused.unread) == (413, {"limit": 1_000}, 1)
    assert refused.header("connection") == "close"


def test_a_body_without_a_length_is_read_up_to_the_limit() -> None:
    refused = echo([b'"' + b"x" * 600, b"x" * 600, b"x" * 600, b'"'])
    assert (refused.status, refused.unread) == (413, 2)
    assert echo([b'"' + b"x" * 400, b"x" * 400, b'"']).status == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "", "9" * 30])
def test_an_invalid_content_length_is_rejected(length: str) -> None:
    assert echo([b"1"], content_length=length).status in (400, 413)


def test_waiting_for_a_body_has_a_timeout() -> None:
    app = make_app([shop()], settings=HttpSettings(body_timeout_seconds=0.01))
    refused = asyncio.run(_half(app))
    assert refused == 408


async def _half(app: object) -> int:
    """Send half a body, and then nothing."""
    messages = [{"type": "http.request", "body": b'{"x":', "more_body": True}]
    sent: list[dict[str, int]] = []

    async def receive() -> dict[str, object]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def send(message: dict[str, int]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/shop/echo",
        "raw_path": b"/shop/echo",
        "query_string": b"",
    }
    await app(scope | {"headers": [(b"content-type", b"application/json")]}, receive, send)  # type: ignore[operator]
    return sent[0]["status"]


def test_a_client_that_disconnects_gets_no_response() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/shop/echo",
        "raw_path": b"/shop/echo",
        "query_string": b"",
    }
    headers = [(b"content-type", b"application/json"), (b"content-length", b"5")]
    asyncio.run(APP(scope | {"headers": headers}, receive, send))
    assert sent == []


LARGE = make_app([shop()], settings=HttpSettings(body_bytes_max=4_000_000))


def test_a_body_with_too_many_values_is_rejected_before_decoding() -> None:
    """33 MB of empty lists took 1.4 GB of memory and blocked the event loop for seven seconds."""
    refused = ask(LARGE, "POST", "/shop/echo", b"[" + b"[]," * 600_000 + b"[]]")
    assert (refused.status, refused.json()["fields"]) == (413, {"limit": REQUEST_VALUES_MAX})


def test_an_object_of_many_members_is_rejected_before_decoding() -> None:
    """490,000 members in 5.8 MB blocked the event loop for 0.75 s."""
    members = b",".join(b'"k%d":null' % number for number in range(REQUEST_VALUES_MAX + 2))
    assert ask(LARGE, "POST", "/shop/echo", b"{" + members + b"}").status == 413
    assert body_values_max(10**9) == HTTP_LARGE_BODY_VALUES_MAX


def test_a_body_that_is_not_json_counts_towards_the_rate() -> None:
    async def save(body: str, caller: Caller) -> None:
        raise AssertionError("never called")

    part = shop(RateLimiter(1, burst=2, clock=ManualClock()))
    part.routes = [Route(method="POST", path="/save", handler=save, scope="write")]
    app = make_app([part])
    headers = {"Authorization": "Bearer ann:write"}
    statuses = [ask(app, "POST", "/shop/save", b"{", headers).status for _ in range(3)]
    assert statuses == [400, 400, 429]


def test_a_large_body_does_not_block_other_requests() -> None:
    async def count_turns() -> int:
        turns = 0
        large = asyncio.create_task(
            asking(LARGE, "POST", "/shop/echo", b"[" + b'["xxxxxxxxxxxx"],' * 40_000 + b"[]]")
        )
        while not large.done():
            await asyncio.sleep(0)
            turns += 1
        assert large.result().status == 200
        return turns

    assert asyncio.run(count_turns()) > 9  # one for each 64 KiB


# JSON


HOSTILE_VALUES = {
    "nothing": b"",
    "NaN": b'{"x":NaN}',
    "Infinity": b"[-Infinity]",
    "too large a number": b'{"x":1e400}',
    "a lone surrogate": rb'"\ud800"',
    "no UTF-8": b'"\xff"',
    "UTF-16": '{"x":1}'.encode("utf-16"),
    "a BOM": b"\xef\xbb\xbf{}",
    "cut off": b'{"x":',
    "two documents": b"{}{}",
    "a trailing comma": b"[1,]",
    "a comment": b"{} // x",
    "single quotes": b"{'x':1}",
    "nested too deep": b"[" * (DOCUMENT_DEPTH_MAX + 1) + b"]" * (DOCUMENT_DEPTH_MAX + 1),
    "a string without end": b'"' + b'\\"' * 400,
}


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_invalid_json_is_rejected(name: str) -> None:
    answered = echo(HOSTILE_VALUES[name], content_type="application/json")
    assert (answered.status, answered.json()["code"]) == (400, "VALIDATION_ERROR")


def test_a_number_with_too_many_digits_is_rejected() -> None:
    app = make_app([shop()])
    assert ask(app, "POST", "/shop/echo", b"9" * 4_001).status == 400
    assert ask(app, "POST", "/shop/echo", b"9" * 4_000).status == 200


def test_hostile_values_are_rejected_even_where_the_type_ignores_them() -> None:
    """A typed decoder skips unknown members: `\\xff` and 1e400 were accepted there."""
    put = "/shop/things/drinks/tea"
    assert ask(APP, "PUT", put, b'{"name":"tea","other":"\xff"}').status == 400
    assert (
        ask(APP, "PUT", put, b'{"name":"tea","other":' + b"[" * 200 + b"]" * 200 + b"}").status
        == 400
    )


@pytest.mark.parametrize(
    "text",
    [rb'{"a":1,"b":[true,null,1.5,-0.0,"\u0000","\ud83d\ude00"]}', b"12345678901234567890123"],
)
def test_a_valid_document_is_returned_unchanged(text: bytes) -> None:
    import json

    assert echo(text).json()["body"] == json.loads(text)


def test_the_last_of_two_duplicate_members_wins() -> None:
    assert echo(b'{"x":1,"x":2}').json()["body"] == {"x": 2}


def test_a_body_of_the_wrong_type_is_rejected_with_reason_and_path() -> None:
    answered = ask(APP, "PUT", "/shop/things/drinks/tea", b'{"name":"tea","price":"3"}')
    assert (answered.status, answered.json()["type"]) == (422, "urn:keyhouse:error:record")
    assert "$.price" in answered.json()["fields"]["reason"]


# Content types


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        'APPLICATION/JSON;charset="UTF-8"',
        "application/x+json",
    ],
)
def test_content_types_of_json_are_accepted(kind: str) -> None:
    assert echo(b"1", content_type=kind).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json; charset=latin-1",
    ],
)
def test_form_content_types_are_rejected(kind: str) -> None:
    assert echo(b"1", content_type=kind).status == 415


def test_a_compressed_body_is_rejected() -> None:
    assert echo(b"1", content_encoding="gzip").status == 415
    assert echo(b"1", content_encoding="identity").status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("text/html, application/xhtml+xml, */*;q=0.8", 200),
        ("application/*", 200),
        ("application/json;q=0.1, text/html", 200),
        ("text/html", 406),
        ("application/json;q=0, */*", 406),
        ("application/json;q=x", 406),
    ],
)
def test_a_response_matches_the_accept_header(accept: str, status: int) -> None:
    assert ask(APP, "GET", "/shop/things/drinks", headers={"Accept": accept}).status == status


# Paths, parameters, headers


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("limit=1&tag=a&tag=b&after=x%20y+z", 200),
        ("limit=", 400),
        ("limit=0", 400),
        ("limit=x", 400),
        ("limit=1&limit=2", 400),
        ("limits=1", 400),
        ("after=%ff", 400),
        ("&&", 200),
    ],
)
def test_parameters_have_types_and_names(query: str, status: int) -> None:
    assert ask(APP, "GET", f"/shop/things/drinks?{query}").status == status


def test_parameters_are_decoded() -> None:
    assert ask(APP, "GET", "/shop/things/drinks?tag=a%26b&tag=%C3%A9&after=x%20y+z").json() == {
        "names": [],
        "limit": 10,
        "tag": ["a&b", "é"],
        "after": "x y z",
    }


def test_a_route_without_parameters_takes_none() -> None:
    assert ask(APP, "POST", "/shop/echo?x=1", b"1").status == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/shop/things/drinks/..", 404),
        ("/shop/things/drinks/%2e%2e", 404),
        ("/shop/things/drinks/a%2Fb", 404),
        ("/shop/things/drinks/%ff", 400),
        ("/shop/things/drinks/" + "x" * 21, 404),
        ("/shop/things/Drinks/tea", 404),
        ("/shop/things//tea", 404),
        ("/shop/../shop/things/drinks/tea", 404),
    ],
)
def test_a_path_of_the_wrong_type_is_not_found(path: str, status: int) -> None:
    assert ask(APP, "GET", path).status == status


def test_an_escaped_slash_is_a_character_of_its_field() -> None:
    answered = ask(APP, "GET", "/shop/fail/a%2Fb%20c")
    assert answered.status == 500, "the handler was called, with one field"


def test_a_header_is_read_by_name_and_must_not_repeat() -> None:
    assert echo(b"1", Idempotency_Key="k1").json()["key"] == "k1"
    twice = [("idempotency-key", "a"), ("idempotency-key", "b")]
    assert ask(APP, "POST", "/shop/echo", b"1", twice).status == 400


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * 100_000, DocumentError),
        (b"{", DocumentError),
        (b"1", RecordError),
        (b'{"a":[' + b"1e-320," * 9_000 + b"1]}", LimitError),
    ],
)
def test_an_optional_body_is_checked_like_others(body: bytes, error: type[Exception]) -> None:
    """One that was nested deep raised RecursionError, a status 500."""
    with pytest.raises(error):
        decode_optional(body, dict[str, int])
    assert decode_optional(b" ", dict[str, int]) == {}
