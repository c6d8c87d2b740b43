"""Tokens: valid ones name their tenant, and every known forgery is rejected."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from keyhouse.auth import Caller, JwtAuth, JwtSettings, jwt_auth, mint
from keyhouse.auth.jwt_auth import SecretKey
from keyhouse.clock import ManualClock
from keyhouse.errors import ScopeError, TokenError, UsageError
from tests.auth.support.forged_tokens import CUSTOMER, GOOD, NOW, SECRET, forgeries, hs

STREAMKIT = r"(?!.*_streamkit_)[A-Za-z0-9_-]{1,64}"


def auth(
    clock: ManualClock | None = None,
    *,
    pattern: str = STREAMKIT,
    cached_max: int = 100,
    keys: SecretKey | None = None,
    **named: object,
) -> JwtAuth:
    settings = msgspec.convert({"jwt_secret": SECRET} | named, JwtSettings)
    return JwtAuth(
        settings,
        keys or SecretKey(SECRET.encode()),
        tenant_pattern=pattern,
        clock=clock or ManualClock(),
        cached_max=cached_max,
    )


def bearing(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"example"), (b"authorization", b"Bearer " + token.encode("utf-8"))]


def authenticate(by: JwtAuth, token: str) -> Caller:
    return asyncio.run(by.authenticate(bearing(token)))


# Good ones


def test_a_valid_token_names_its_tenant_and_may_read_and_write() -> None:
    assert authenticate(auth(), hs(GOOD)) == Caller(
        tenant=CUSTOMER, scopes=frozenset({"read", "write"})
    )


@pytest.mark.parametrize(
    ("claims", "tenant"),
    [
        ({"customerId": "a", "userId": "b", "sub": "c"}, "a"),
        ({"userId": "b", "sub": "c"}, "b"),
        ({"sub": "c"}, "c"),
    ],
)
def test_the_first_tenant_claim_in_the_token_is_used(claims: dict[str, str], tenant: str) -> None:
    assert authenticate(auth(), hs(claims | {"exp": NOW + 60})).tenant == tenant


def test_the_tenant_claims_are_configurable() -> None:
    assert (
        authenticate(auth(jwt_tenant_claims=["org"]), hs(GOOD | {"org": "acme"})).tenant == "acme"
    )
    with pytest.raises(TokenError, match="names no tenant"):
        authenticate(auth(jwt_tenant_claims=["org"]), hs(GOOD))


def test_only_the_scopes_of_the_token_are_allowed() -> None:
    caller = authenticate(auth(), hs(GOOD | {"scope": "read  admin"}))
    assert caller.scopes == {"read", "admin"}
    caller.require("read")
    with pytest.raises(ScopeError, match="needed='write'"):
        caller.require("write")
    assert authenticate(auth(), hs(GOOD | {"scope": ""})).scopes == frozenset()


def test_issuer_and_audience_must_match_the_settings() -> None:
    strict = auth(jwt_issuer="https://id.example", jwt_audience="streamkit")
    good = GOOD | {"iss": "https://id.example", "aud": ["other", "streamkit"]}
    assert authenticate(strict, hs(good)).tenant == CUSTOMER
    assert authenticate(strict, hs(good | {"aud": "streamkit"})).tenant == CUSTOMER
    wrong: list[dict[str, object]] = [
        {"iss": "https://id.example/"},
        {"iss": None},
        {"aud": "stream"},
        {"aud": []},
    ]
    wrong.append({"aud": None})
    for changed in wrong:
        with pytest.raises(TokenError):
            authenticate(strict, hs(good | changed))
    for missing in ("iss", "aud"):
        with pytest.raises(TokenError):
            authenticate(
                strict, hs({name: value for name, value in good.items() if name != missing})
            )


# Times


def test_the_leeway_is_thirty_seconds_and_no_more() -> None:
    assert authenticate(auth(), hs(GOOD | {"exp": NOW - 29})).tenant == CUSTOMER
    assert authenticate(auth(), hs(GOOD | {"nbf": NOW + 30, "iat": NOW + 30})).tenant == CUSTOMER
    with pytest.raises(TokenError, match="expired"):
        authenticate(auth(), hs(GOOD | {"exp": NOW - 30}))
    with pytest.raises(TokenError, match="not valid yet"):
        authenticate(auth(), hs(GOOD | {"nbf": NOW + 31}))
    with pytest.raises(TokenError, match="expired"):
        authenticate(auth(jwt_leeway_seconds=0), hs(GOOD | {"exp": NOW}))


def test_a_cached_token_still_expires() -> None:
    clock = ManualClock()
    by = auth(clock)
    token = hs(GOOD | {"exp": NOW + 10})
    assert authenticate(by, token) == authenticate(by, token)
    clock.advance(seconds=39.999)
    authenticate(by, token)
    clock.advance(milliseconds=1)
    with pytest.raises(TokenError, match="expired"):
        authenticate(by, token)
    clock.advance(seconds=-100)
    authenticate(by, token)
    clock.set((NOW - 1_000) * 1_000)
    started = hs(GOOD | {"nbf": NOW})
    with pytest.raises(TokenError, match="not valid yet"):
        authenticate(by, started)


def test_cached_caller_agrees_with_authenticate() -> None:
    clock, keys = ManualClock(), SecretKey(SECRET.encode())
    by = auth(clock, keys=keys)
    token = hs(GOOD | {"exp": NOW + 10, "nbf": NOW})
    headers = dict(bearing(token))
    assert by.cached_caller(headers) is None, "nothing is known before it was verified"
    caller = authenticate(by, token)
    assert by.cached_caller(headers) is caller
    for other in (
        {b"authorization": b"Bearer " + token.encode() + b"x"},
        {b"authorization": b"bearer " + token.encode()},
        {b"authorization": b"Basic " + token.encode()},
        {b"cookie": b"auth_token=" + token.encode()},
        headers | {b"cookie": b"auth_token=other"},
        {b"cookie": b"a=b"},
        {},
    ):
        assert by.cached_caller(other) is None
    assert by.cached_caller(headers | {b"cookie": b"a=b"}) is caller
    cookie = {b"cookie": b"a=b; auth_token=" + token.encode()}
    from_cookie = asyncio.run(by.authenticate([*cookie.items()]))
    assert from_cookie.from_cookie and by.cached_caller(cookie) is from_cookie
    assert by.cached_caller(headers | cookie) is from_cookie
    for seconds, known in ((39.999, True), (0.001, False), (-70.001, False), (0.001, True)):
        clock.advance(seconds=seconds)
        assert (by.cached_caller(headers) is not None) == known
        assert (by.cached_caller(cookie) is not None) == known
    keys.version += 1
    assert by.cached_caller(headers) is None, "the keys have changed"


def test_a_cached_cookie_token_is_not_a_bearer_token_with_a_prefix() -> None:
    """Regression: tokens from cookies were cached by the hash of `c` and the token, so that `Bearer
    c…` was accepted.
    """
    by = auth()
    token = hs(GOOD)
    asyncio.run(by.authenticate([(b"cookie", b"auth_token=" + token.encode())]))
    assert by.cached_caller(dict(bearing("c" + token))) is None
    with pytest.raises(TokenError):
        authenticate(by, "c" + token)
    assert not authenticate(by, token).from_cookie


def test_the_cache_is_bounded_and_contains_no_token() -> None:
    by = auth(cached_max=3)
    tokens = [hs(GOOD | {"jti": str(number)}) for number in range(10)]
    for token in tokens * 2:
        assert authenticate(by, token).tenant == CUSTOMER
    cached = [token for token in tokens if by.cached_caller(dict(bearing(token))) is not None]
    assert cached == tokens[-3:]
    assert not any(token in repr(vars(by)) for token in tokens)


def test_a_forgery_is_not_cached() -> None:
    by = auth()
    for _, token in forgeries():
        with pytest.raises(TokenError):
            authenticate(by, token)
        assert by.cached_caller(dict(bearing(token))) is None


# Forged ones


FORGERIES = list(forgeries())


def test_all_forgeries_are_different() -> None:
    assert len({token for _, token in FORGERIES}) == len(FORGERIES) >= 80


@pytest.mark.parametrize(("name", "token"), FORGERIES, ids=[name for name, _ in FORGERIES])
def test_a_forgery_is_rejected(name: str, token: str) -> None:
    with pytest.raises(TokenError) as refused:
        authenticate(auth(), token)
    said = str(refused.value)
    assert SECRET not in said and (len(token) < 20 or token not in said)


@pytest.mark.parametrize("tenant", ["12_streamkit_notes", "_streamkit_", "a_streamkit_"])
def test_an_ambiguous_tenant_name_is_rejected(tenant: str) -> None:
    with pytest.raises(TokenError, match="Malformed tenant claim"):
        authenticate(auth(), hs(GOOD | {"customerId": tenant}))


# Where the token stands


def find(*headers: tuple[str, str]) -> Caller:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return asyncio.run(auth().authenticate(pairs))


TOKEN, OTHER = hs(GOOD), hs(GOOD | {"customerId": "6"})


def test_a_token_is_found_in_the_cookie_or_after_bearer() -> None:
    assert find(("cookie", f"theme=dark; auth_token={TOKEN}; x=1")).from_cookie is True
    assert find(("cookie", "theme=dark"), ("cookie", f"auth_token={TOKEN}")).from_cookie is True
    assert find(("authorization", f"bearer  {TOKEN} ")).from_cookie is False
    assert (
        find(("authorization", "Basic eDp5"), ("cookie", f"auth_token={TOKEN}")).tenant == CUSTOMER
    )


def test_the_same_token_in_both_places_counts_as_from_the_cookie() -> None:
    assert (
        find(("cookie", f"auth_token={TOKEN}"), ("authorization", f"Bearer {TOKEN}")).from_cookie
        is True
    )


@pytest.mark.parametrize(
    "headers",
    [
        [("cookie", f"auth_token={TOKEN}"), ("authorization", f"Bearer {OTHER}")],
        [("cookie", f"auth_token={TOKEN}; auth_token={OTHER}")],
        [("cookie", f"auth_token={TOKEN}; auth_token={TOKEN}")],
        [("cookie", f"auth_token={TOKEN}"), ("cookie", f"auth_token={OTHER}")],
        [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {OTHER}")],
    ],
    ids=["cookie and header", "two in one cookie", "twice the same", "two cookies", "two headers"],
)
def test_two_tokens_are_rejected(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(TokenError, match="more than one"):
        find(*headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("cookie", "auth_token=")],
        [("cookie", f"Auth_Token={TOKEN}")],
        [("cookie", f"xauth_token={TOKEN}")],
        [("cookie", f'auth_token="{TOKEN}"')],
        [("authorization", TOKEN)],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", "Bearer")],
        [("authorization", f"Bearer {TOKEN}, Bearer {OTHER}")],
        [("x-authorization", f"Bearer {TOKEN}")],
    ],
)
def test_a_missing_token_is_rejected(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(TokenError):
        find(*headers)


# Made ones


def test_a_minted_token_is_accepted_and_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = JwtSettings(jwt_issuer="me", jwt_audience="you")
    token = mint(settings, tmp_path, CUSTOMER, scopes=["read"], seconds=60, clock=clock)
    by = jwt_auth(settings, tmp_path, clock=clock)
    assert authenticate(by, token) == Caller(tenant=CUSTOMER, scopes=frozenset({"read"}))
    clock.advance(seconds=90)
    with pytest.raises(TokenError, match="expired"):
        authenticate(by, token)


@pytest.mark.parametrize("tenant", ["", "a b", "x" * 65, "12_streamkit_x"])
def test_no_token_is_minted_for_an_invalid_tenant_name(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(UsageError, match="Invalid tenant name"):
        mint(JwtSettings(), tmp_path, tenant, tenant_pattern=STREAMKIT)
    assert not list(tmp_path.iterdir()), "a refusal makes no secret"


def test_tokens_are_minted_with_a_secret_only_and_for_a_year_at_most(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="private key"):
        mint(JwtSettings(jwt_algorithm="RS256", jwks="keys.json"), tmp_path, CUSTOMER)
    for seconds in (0, -1, 400 * 86_400, float("nan")):
        with pytest.raises(UsageError, match="lifetime"):
            mint(JwtSettings(), tmp_path, CUSTOMER, seconds=seconds)


def test_a_token_names_its_subject_and_roles() -> None:
    named = authenticate(auth(), hs(GOOD | {"sub": "ann", "roles": ["owner", 5, "reader"]}))
    assert (named.subject, named.roles) == ("ann", frozenset({"owner", "reader"}))
    plain = authenticate(auth(), hs(GOOD | {"sub": 5, "roles": "owner"}))
    assert (plain.subject, plain.roles) == ("", frozenset())
