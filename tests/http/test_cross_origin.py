"""Cross-origin requests: allowed origins may call (CORS), and no other page can use a visitor's
cookie to change something (CSRF)."""

import pytest

from keyhouse.http import HttpSettings, make_app
from tests.http.support.asgi_client import Answered, ask
from tests.http.support.shop import shop

PANEL = "https://panel.example"
COOKIE = {"Cookie": "who=ann:read,write", "Host": "api.example"}
APP = make_app([shop()], settings=HttpSettings(cors_origins=(PANEL,), credentials=True))


def change(**headers: str) -> Answered:
    return ask(
        APP,
        "POST",
        "/shop/mine",
        headers=COOKIE | {name.replace("_", "-"): it for name, it in headers.items()},
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://api.example"},
        {"Origin": PANEL},
        {"Sec_Fetch_Site": "same-origin", "Origin": "https://api.example"},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": "cross-site", "Origin": PANEL},
    ],
    ids=[
        "no browser",
        "the same host",
        "an allowed site",
        "the same site",
        "typed by the visitor",
        "allowed, and said",
    ],
)
def test_a_cookie_from_an_allowed_origin_is_accepted(headers: dict[str, str]) -> None:
    assert change(**headers).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://api.example.evil.example"},
        {"Origin": "https://evilpanel.example"},
        {"Origin": "http://panel.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Origin": "https://api.example"},
    ],
    ids=str,
)
def test_a_cookie_from_another_origin_is_rejected(headers: dict[str, str]) -> None:
    refused = change(**headers)
    assert (refused.status, refused.json()["type"]) == (403, "urn:keyhouse:error:access")


def test_a_cors_origin_without_credentials_cannot_use_a_cookie() -> None:
    """`--cors http://127.0.0.1:3000` let a page there post the forms of the Studio: cookies are not
    separated by port."""
    app = make_app([shop()], settings=HttpSettings(cors_origins=(PANEL,)))
    sent = COOKIE | {"Origin": PANEL, "Sec-Fetch-Site": "same-site"}
    assert ask(app, "POST", "/shop/mine", headers=sent).status == 403


def test_reads_and_bearer_tokens_need_no_origin_check() -> None:
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ask(APP, "GET", "/shop/mine", headers=COOKIE | evil).status == 200
    assert (
        ask(APP, "POST", "/shop/mine", headers={"Authorization": "Bearer ann:write"} | evil).status
        == 200
    )


def preflight(
    origin: str, method: str = "PUT", headers: str = "authorization, if-match"
) -> Answered:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers,
    }
    return ask(APP, "OPTIONS", "/shop/things/drinks/tea", headers=asked)


def test_an_allowed_origin_gets_cors_headers() -> None:
    allowed = preflight(PANEL)
    assert (allowed.status, allowed.header("access-control-allow-origin")) == (200, PANEL)
    assert allowed.header("access-control-allow-credentials") == "true"
    answered = ask(APP, "GET", "/shop/things/drinks", headers={"Origin": PANEL})
    assert answered.header("access-control-allow-origin") == PANEL
    assert "ETag" in (answered.header("access-control-expose-headers") or "")


def test_an_allowed_origin_can_read_errors() -> None:
    answered = ask(APP, "GET", "/shop/nothing", headers={"Origin": PANEL})
    assert (answered.status, answered.header("access-control-allow-origin")) == (404, PANEL)


def test_another_origin_is_rejected() -> None:
    assert preflight("https://evil.example").status == 403
    assert preflight("https://evil.example").header("access-control-allow-origin") is None
    answered = ask(APP, "GET", "/shop/things/drinks", headers={"Origin": "https://evil.example"})
    assert answered.header("access-control-allow-origin") is None


def test_without_settings_no_origin_is_allowed() -> None:
    answered = ask(make_app([shop()]), "GET", "/shop/things/drinks", headers={"Origin": PANEL})
    assert (answered.status, answered.header("access-control-allow-origin")) == (200, None)


def test_all_origins_can_be_allowed_without_cookies() -> None:
    app = make_app([shop()], settings=HttpSettings(cors_origins=("*",)))
    answered = ask(app, "GET", "/shop/things/drinks", headers={"Origin": "https://any.example"})
    assert answered.header("access-control-allow-origin") == "*"
    assert answered.header("access-control-allow-credentials") is None
    refused = ask(app, "POST", "/shop/mine", headers=COOKIE | {"Origin": "https://any.example"})
    assert refused.status == 403, "a site that is not named cannot use the cookie"


@pytest.mark.parametrize("origin", [PANEL, "https://evil.example"])
def test_a_preflight_response_has_the_security_headers(
    origin: str,
) -> None:
    """It was Starlette's own response: plain text, without the security headers."""
    answer = preflight(origin)
    assert (answer.header("x-content-type-options"), answer.header("x-frame-options")) == (
        "nosniff",
        "DENY",
    )
    assert answer.header("content-length") == str(len(answer.body))
    if origin != PANEL:
        assert answer.header("content-type") == "application/problem+json"
        assert answer.json()["requestId"] == answer.header("x-request-id")
