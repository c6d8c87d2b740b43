"""Key sets: RS256 and ES256 tokens, key rotation, and slow, wrong or unreachable sources."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from keyhouse.auth import JwtAuth, JwtSettings, jwks, jwt_auth
from keyhouse.auth.jwks import KeySet, jwks_loader, read_keys
from keyhouse.auth.limits import JWKS_BYTES_MAX
from keyhouse.clock import ManualClock
from keyhouse.errors import KeyhouseError, TokenError, UnavailableError, UsageError
from tests.auth.support.forged_tokens import (
    CUSTOMER,
    GOOD,
    ec_key,
    es,
    hs,
    jwk,
    pem,
    rs,
    rsa_key,
    unsigned,
)
from tests.support.polling import until


def keys(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


ONE, TWO = jwk(rsa_key(), kid="one"), jwk(rsa_key("two"), kid="two")


class Source:
    """A key set that tests change, count and break, with its clock."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.text = keys(*entries)
        self.error: Exception | None = None
        self.fetches = 0
        self.now = 0.0

    async def load(self) -> bytes:
        self.fetches += 1
        if self.error is not None:
            raise self.error
        return self.text

    def fetched(self, count: int) -> bool:
        return self.fetches == count

    def auth(self, algorithm: Any = "RS256") -> JwtAuth:
        settings = JwtSettings(jwt_algorithm=algorithm, jwks="keys.json")
        found = KeySet(
            self.load,
            algorithm,
            cache_seconds=3_600,
            refresh_min_seconds=30,
            monotonic=lambda: self.now,
        )
        return JwtAuth(settings, found, clock=ManualClock())


async def tenant_of(auth: JwtAuth, token: str) -> str:
    return (await auth.authenticate([(b"authorization", b"Bearer " + token.encode())])).tenant


async def refused(auth: JwtAuth, token: str) -> str:
    with pytest.raises(TokenError) as error:
        await tenant_of(auth, token)
    return error.value.sentence


# Tokens


def test_a_token_signed_by_a_key_of_the_set_is_accepted() -> None:
    assert asyncio.run(tenant_of(Source(ONE, TWO).auth(), rs(GOOD))) == CUSTOMER
    assert (
        asyncio.run(tenant_of(Source(ONE, TWO).auth(), rs(GOOD, rsa_key("two"), kid="two")))
        == CUSTOMER
    )
    assert (
        asyncio.run(tenant_of(Source(jwk(ec_key(), kid="one")).auth("ES256"), es(GOOD))) == CUSTOMER
    )


def test_a_set_with_one_key_needs_no_kid() -> None:
    assert asyncio.run(tenant_of(Source(ONE).auth(), rs(GOOD, kid=None))) == CUSTOMER
    assert "unknown key" in asyncio.run(refused(Source(ONE, TWO).auth(), rs(GOOD, kid=None)))


FORGED: dict[str, str] = {
    "signed with the public key as a secret": hs(GOOD, pem(rsa_key()), kid="one"),
    "the same, declared as RS256": hs(GOOD, pem(rsa_key()), kid="one", alg="RS256"),
    "signed with the key set as a secret": hs(GOOD, keys(ONE), kid="one"),
    "no signature": unsigned(GOOD, alg="none", kid="one"),
    "no signature, declared as RS256": unsigned(GOOD, alg="RS256", kid="one"),
    "an attacker's key under our key id": rs(GOOD, rsa_key("theirs")),
    "an attacker's key in jwk": rs(GOOD, rsa_key("theirs"), jwk=jwk(rsa_key("theirs"), kid="one")),
    "an attacker's URL in jku": rs(GOOD, rsa_key("theirs"), jku="https://theirs.example/keys.json"),
    "an attacker's certificate in x5u": rs(
        GOOD, rsa_key("theirs"), x5u="https://theirs.example/cert.pem"
    ),
    "our second key under the id of the first": rs(GOOD, rsa_key("two"), kid="one"),
    "ES256": es(GOOD),
    "RS512": rs(GOOD, alg="RS512"),
    "PS256": rs(GOOD, alg="PS256"),
    "a foreign kid": rs(GOOD, rsa_key("theirs"), kid="theirs"),
    "a kid that is not text": rs(GOOD, kid=["one"]),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_rejected(name: str) -> None:
    asyncio.run(refused(Source(ONE, TWO).auth(), FORGED[name]))


# Keys


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
        jwk(rsa_key(), kid="one", use="enc"),
        jwk(rsa_key(), kid="one", alg="RS512"),
        jwk(ec_key(), kid="one"),
        jwk(rsa_key("short", 1_024), kid="one"),
        {"kty": "RSA", "kid": "one"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "one"},
    ],
    ids=[
        "a secret",
        "for encryption",
        "of another algorithm",
        "of another kind",
        "too short",
        "half",
        "garbage",
    ],
)
def test_an_unsuitable_key_is_skipped(entry: dict[str, Any]) -> None:
    assert list(read_keys(keys(entry, TWO), "RS256")) == ["two"]
    with pytest.raises(UsageError, match="no key"):
        read_keys(keys(entry), "RS256")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":1}',
        b'{"keys":[1]}',
        b"<html>",
        b'{"keys":[{"a":' + b"[" * 100_000,
    ],
    ids=["nothing", "a list", "an object", "a number", "no objects", "a page", "too deep"],
)
def test_an_invalid_key_set_is_rejected(text: bytes) -> None:
    with pytest.raises(UsageError):
        read_keys(text, "RS256")


# Rotation


def test_an_unknown_kid_triggers_a_throttled_fetch() -> None:
    async def story() -> None:
        at = Source(ONE)
        auth = at.auth()
        await tenant_of(auth, rs(GOOD))
        assert at.fetches == 1
        at.text = keys(TWO)
        at.now = 31
        assert await tenant_of(auth, rs(GOOD, rsa_key("two"), kid="two")) == CUSTOMER
        assert at.fetches == 2
        assert "unknown key" in await refused(auth, rs(GOOD)), (
            "a token of a removed key, cached before"
        )
        for number in range(100):
            await refused(auth, rs(GOOD, rsa_key("theirs"), kid=f"theirs-{number}"))
        assert at.fetches == 2, "clients cannot trigger more fetches"
        at.now = 62
        await refused(auth, rs(GOOD, rsa_key("theirs"), kid="theirs"))
        assert at.fetches == 3

    asyncio.run(story())


def test_concurrent_requests_for_a_key_share_one_fetch() -> None:
    async def story() -> None:
        at = Source(ONE)
        auth = at.auth()
        assert (
            await asyncio.gather(*(tenant_of(auth, rs(GOOD | {"jti": str(n)})) for n in range(20)))
            == [CUSTOMER] * 20
        )
        assert at.fetches == 1

    asyncio.run(story())


def test_a_stale_key_set_is_refreshed_in_the_background() -> None:
    async def story() -> None:
        at = Source(ONE, TWO)
        auth = at.auth()
        token = rs(GOOD, rsa_key("two"), kid="two")
        await tenant_of(auth, token)
        at.text = keys(ONE)
        at.now = 3_601
        assert await tenant_of(auth, token) == CUSTOMER, "answered with the cached set"
        await until_refused(auth, token)
        assert at.fetches == 2
        assert "unknown key" in await refused(auth, token), "and the removed key is not in it"

    asyncio.run(story())


def test_the_last_keys_remain_valid_while_the_source_is_down() -> None:
    async def story() -> None:
        at = Source(ONE)
        auth = at.auth()
        await tenant_of(auth, rs(GOOD))
        broken: list[Exception] = [OSError("gone"), TimeoutError("slow"), ValueError("odd")]
        for number, error in enumerate(broken):
            at.error = error
            at.now += 4_000
            assert await tenant_of(auth, rs(GOOD | {"jti": str(number)})) == CUSTOMER
            await until(partial(at.fetched, number + 2))
        at.error, at.text = None, b"<html>maintenance</html>"
        at.now += 4_000
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER

    asyncio.run(story())


def test_a_source_that_never_answered_is_unavailable_not_unauthorized() -> None:
    async def story() -> None:
        at = Source(ONE)
        at.error = OSError("gone")
        auth = at.auth()
        for _ in range(5):
            with pytest.raises(UnavailableError):
                await tenant_of(auth, rs(GOOD))
        assert at.fetches == 1
        at.error, at.now = None, 31
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER

    asyncio.run(story())


def test_readiness_follows_the_key_set() -> None:
    """/ready returned 200 while every token was rejected with 503."""

    async def story() -> None:
        at = Source(ONE)
        at.error = OSError("gone")
        auth = at.auth()
        with capture_logs() as lines:
            for _ in range(5):
                with pytest.raises(UnavailableError, match="key set cannot be read"):
                    await auth.ready()
        assert at.fetches == 1 and [line["error"] for line in lines] == ["gone"]
        at.error, at.now = None, 31
        await auth.ready()
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER
        at.error, at.now = OSError("gone again"), 4_000
        await auth.ready()  # the last keys hold

    asyncio.run(story())


def test_an_empty_key_set_revokes_all_tokens() -> None:
    """The old keys remained valid, as if the set could not be read."""

    async def story() -> None:
        at = Source(ONE)
        auth = at.auth()
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER
        at.text, at.now = keys(), 4_000
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER  # starts the refresh
        await until_refused(auth, rs(GOOD))
        assert "unknown key" in await refused(auth, rs(GOOD))
        with pytest.raises(UnavailableError, match="key set is empty"):
            await auth.ready()
        at.text, at.now = keys(ONE), 8_000
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER

    asyncio.run(story())


def test_a_hanging_source_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        hung = threading.Event()
        at = Source(ONE)

        async def load() -> bytes:
            await asyncio.to_thread(hung.wait, 60)
            return await at.load()

        slow = KeySet(load, "RS256", cache_seconds=3_600, refresh_min_seconds=30)
        monkeypatch.setattr(jwks, "CHECK_TIMEOUT_SECONDS", 0.001)
        with pytest.raises(UnavailableError, match="key set cannot be read"):
            await slow.check()
        hung.set()
        monkeypatch.setattr(jwks, "CHECK_TIMEOUT_SECONDS", 30)
        await slow.check()  # the same fetch
        assert at.fetches == 1

    asyncio.run(story())


async def until_refused(auth: JwtAuth, token: str) -> None:
    """Wait until the refreshed keys are used."""

    async def is_refused() -> bool:
        with suppress(KeyhouseError):
            return not await tenant_of(auth, token)
        return True

    await until(is_refused)


async def until_found(keys: KeySet, name: str) -> Any:
    """Retry while the keys are being fetched."""
    return await until(lambda: keys.find(name), retry=UnavailableError)


# Files and URLs


async def load(location: str) -> bytes:
    return await jwks_loader(location)()


def test_a_key_set_file_is_read_and_reloaded(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "keys.json"
        settings = JwtSettings(jwt_algorithm="RS256", jwks=str(path), jwks_refresh_min_seconds=1e-9)
        with capture_logs() as logs:
            jwt_auth(settings, tmp_path)
        assert [line["file"] for line in logs] == [str(path)], (
            "a misspelled name is reported at once"
        )
        path.write_bytes(keys(ONE))
        auth = jwt_auth(settings, tmp_path, clock=ManualClock())
        assert await tenant_of(auth, rs(GOOD)) == CUSTOMER
        path.write_bytes(keys(TWO))
        assert await tenant_of(auth, rs(GOOD, rsa_key("two"), kid="two")) == CUSTOMER

    asyncio.run(story())


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path:
            case "/keys":
                self._send(200, keys(ONE))
            case "/moved":
                self._send(302, b"", ("Location", "/keys"))
            case "/huge":
                self._send(200, b" " * (JWKS_BYTES_MAX + 1))
            case "/slow-body":
                self.send_response(200)
                self.end_headers()
                self._trickle(b"", b" ")
            case "/slow-head":
                self._trickle(b"HTTP/1.0 200 OK\r\nX: ", b"1")
            case _:
                self._send(503, b"")

    def _trickle(self, start: bytes, byte: bytes) -> None:
        """Send a byte at a time until the client disconnects."""
        self.wfile.write(start)
        with suppress(OSError):
            while True:
                self.wfile.write(byte)
                time.sleep(0.05)

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_a_key_set_is_fetched_from_a_url(server: str, tmp_path: Path) -> None:
    settings = JwtSettings(jwt_algorithm="RS256", jwks=f"{server}/keys")
    assert (
        asyncio.run(tenant_of(jwt_auth(settings, tmp_path, clock=ManualClock()), rs(GOOD)))
        == CUSTOMER
    )


@pytest.mark.parametrize("path", ["/moved", "/huge", "/down"])
def test_redirects_large_bodies_and_errors_are_rejected(server: str, path: str) -> None:
    with pytest.raises(OSError):
        asyncio.run(load(server + path))


@pytest.mark.parametrize("path", ["/slow-body", "/slow-head"])
def test_a_trickling_source_is_aborted(
    server: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read met its timeout, but the fetch never ended: requests with an unknown key waited for
    it, and so did shutdown."""
    monkeypatch.setattr(jwks, "JWKS_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(TimeoutError, match="too long"):
        asyncio.run(load(server + path))


def test_waiting_for_a_key_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the connection is not the cause: name resolution or a disk that hangs."""

    async def story() -> None:
        monkeypatch.setattr(jwks, "JWKS_TIMEOUT_SECONDS", 0.01)
        at, come = Source(ONE), threading.Event()

        async def load() -> bytes:
            return await at.load() if await asyncio.to_thread(come.wait, 60) else b""

        found = KeySet(
            load,
            "RS256",
            cache_seconds=3_600,
            refresh_min_seconds=30,
            monotonic=lambda: at.now,
        )
        with pytest.raises(UnavailableError):
            await found.find("one")
        with pytest.raises(UnavailableError):
            await found.find("one")
        come.set()
        await until(lambda: found.version == 1)
        assert at.fetches == 1, "the one that was late is the one that counts"
        await found.find("one")
        come.clear()
        at.now += 31
        with pytest.raises(UnavailableError):
            await found.find("two")  # it is not known yet whether it is unknown
        come.set()
        with pytest.raises(TokenError):
            await until_found(found, "two")

    asyncio.run(story())


@pytest.mark.parametrize(
    "place", ["http://id.example/keys", "ftp://id.example/keys", "file:///etc/keys"]
)
def test_a_key_set_must_not_come_from_an_insecure_source(place: str) -> None:
    with pytest.raises(UsageError):
        jwks_loader(place)
