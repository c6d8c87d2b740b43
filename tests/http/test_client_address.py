"""The client's address through proxies, and rate limits by it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.auth import Caller
from keyhouse.clock import ManualClock
from keyhouse.errors import UsageError
from keyhouse.http import ClientAddress, HttpSettings, Route, canonical_address
from keyhouse.http.client_address import TrustedProxies
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import run, serving
from tests.http.support.shop import Tokens

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8", "192.0.2.7"])


def found(peer: str, *forwarded: str, proto: str | None = None) -> ClientAddress:
    pairs = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    if proto is not None:
        pairs.append((b"x-forwarded-proto", proto.encode()))
    scope = {"client": (peer, 4711), "headers": pairs, "scheme": "http"}
    return PROXIES.client(scope, dict(pairs))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("198.51.100.1", (), "198.51.100.1"),
        ("198.51.100.1", ("203.0.113.9",), "198.51.100.1"),  # sent by the client itself
        ("10.0.0.1", ("203.0.113.9",), "203.0.113.9"),
        ("10.0.0.1", ("203.0.113.9, 198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("203.0.113.9, 10.1.1.1",), "203.0.113.9"),
        ("10.0.0.1", ("203.0.113.9", "10.1.1.1,fd00::1"), "203.0.113.9"),  # in two lines
        ("10.0.0.1", ("10.2.2.2, 10.1.1.1",), "10.2.2.2"),  # within our own network
        ("10.0.0.1", ("203.0.113.9, unknown, 10.1.1.1",), "10.1.1.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("203.0.113.9:5000",), "203.0.113.9"),
        ("10.0.0.1", ("[2001:db8::1]:5000",), "2001:db8::1"),
        ("::ffff:10.0.0.1", ("::ffff:203.0.113.9",), "203.0.113.9"),
        ("::ffff:198.51.100.1", (), "198.51.100.1"),
        ("fe80::1%eth0", (), "fe80::1"),
        ("2001:DB8:0:0::0:1", (), "2001:db8::1"),
        ("192.0.2.7", ("2001:db8::2",), "2001:db8::2"),
    ],
)
def test_only_what_a_trusted_proxy_appended_is_believed(
    peer: str, forwarded: tuple[str, ...], client: str
) -> None:
    assert found(peer, *forwarded).address == client


def test_clients_of_one_ipv6_network_share_their_limit() -> None:
    assert found("2001:db8:1:2:3:4:5:6").network == "2001:db8:1:2::/64"
    assert found("198.51.100.1").network == "198.51.100.1"


def test_https_is_known_from_a_trusted_proxy_only() -> None:
    assert found("10.0.0.1", proto="https").is_https
    assert not found("10.0.0.1", proto="https, http").is_https
    assert not found("198.51.100.1", proto="https").is_https


def test_a_server_that_knows_no_address_gives_an_empty_one() -> None:
    assert PROXIES.client({"client": None, "headers": []}, {}) == ClientAddress("", "")


def test_long_lists_of_hops_are_cut() -> None:
    assert found("10.0.0.1", ", ".join(["10.0.0.2"] * 5_000)).address == "10.0.0.2"


@given(st.lists(st.text(max_size=20), max_size=5))
def test_no_header_makes_an_untrusted_peer_another_client(hops: list[str]) -> None:
    pairs = [(b"x-forwarded-for", hop.encode("latin-1", "replace")) for hop in hops]
    scope = {"client": ("203.0.113.1", 1), "headers": pairs, "scheme": "http"}
    assert PROXIES.client(scope, dict(pairs)).address == "203.0.113.1"
    scope["client"] = ("10.0.0.1", 1)
    canonical_address(PROXIES.client(scope, dict(pairs)).address)  # an address, for any header


@pytest.mark.parametrize("network", ["localhost", "10.0.0.0/33", "", "10.0.0.0/8,10.1.0.0/16"])
def test_an_invalid_proxy_is_rejected_when_settings_are_read(network: str) -> None:
    with pytest.raises(UsageError, match="trusted proxy"):
        HttpSettings(proxies=(network,))


def test_an_address_has_one_canonical_form() -> None:
    assert canonical_address("::FFFF:192.0.2.1") == "192.0.2.1"
    assert canonical_address("2001:0db8::0:1") == "2001:db8::1"
    with pytest.raises(UsageError, match="not an IP address"):
        canonical_address("example.org")


def service(**parts: Any) -> ServiceSpec:
    async def address(client: ClientAddress) -> dict[str, Any]:
        """Return the client's address."""
        return {"address": client.address, "https": client.is_https}

    async def optional(caller: Caller | None, client: ClientAddress) -> dict[str, Any]:
        """Return the caller, if there is one."""
        return {"tenant": caller and caller.tenant, "address": client.address}

    return ServiceSpec(
        name="who",
        auth=Tokens(),
        routes=[
            Route(method="GET", path="/address", handler=address),
            Route(method="GET", path="/optional", handler=optional, scope=""),
        ],
        **parts,
    )


def test_a_handler_gets_the_client_behind_the_proxy() -> None:
    async def scenario() -> None:
        sent = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
        async with serving(service()) as client:
            plain = await client.get("/address", headers=sent)
            assert plain.json() == {"address": "127.0.0.1", "https": False}
        async with serving(service(), proxies=("127.0.0.0/8",)) as client:
            proxied = await client.get("/address", headers=sent)
            assert proxied.json() == {"address": "203.0.113.9", "https": True}

    run(scenario)


def test_a_route_with_an_optional_caller_answers_without_one_and_rejects_a_wrong_one() -> None:
    async def scenario() -> None:
        async with serving(service()) as client:
            assert (await client.get("/optional")).json()["tenant"] is None
            known = await client.get("/optional", headers={"Authorization": "Bearer ann:read"})
            assert known.json()["tenant"] == "ann"
            wrong = await client.get("/optional", headers={"Authorization": "Bearer nobody"})
            assert wrong.status_code == 401
            document = (await client.get("/openapi.json")).json()["paths"]
            assert document["/optional"]["get"]["security"] == [{"bearer": []}, {}]

    run(scenario)


def test_requests_without_a_caller_are_limited_by_address() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limited = service(address_rates=RateLimiter(1, burst=2, clock=clock))
        async with serving(limited, proxies=("127.0.0.1",)) as client:

            async def status(path: str, address: str, token: str = "") -> int:
                sent = {"X-Forwarded-For": address}
                if token:
                    sent["Authorization"] = f"Bearer {token}"
                return (await client.get(path, headers=sent)).status_code

            assert [await status("/address", "203.0.113.9") for _ in range(3)] == [200, 200, 429]
            assert await status("/address", "203.0.113.10") == 200, "another address"
            assert await status("/optional", "203.0.113.9", "ann:read") == 200, "a caller"
            one, other = "2001:db8::1", "2001:db8::ffff:1"
            assert await status("/address", one) == 200
            assert await status("/address", other) == 200
            assert await status("/optional", one) == 429, "the same /64"
            tried = [await status("/optional", "203.0.113.11", "nobody") for _ in range(3)]
            assert tried == [401, 401, 429], "guessed tokens are limited too"
            document = (
                await client.get("/openapi.json", headers={"X-Forwarded-For": "::1"})
            ).json()
            assert "429" in document["paths"]["/address"]["get"]["responses"]

    run(scenario)
