"""Tokens built byte by byte: valid ones, and every known forgery, to be rejected on every route."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

SECRET = "only-for-tests-0123456789abcdef-0123456789"
CUSTOMER = "12345"
NOW = 1_767_225_600
"""Seconds; the moment at which a ManualClock starts."""

GOOD = {"customerId": CUSTOMER, "exp": NOW + 3_600}


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hs(
    claims: Any, secret: str | bytes = SECRET, *, hash_name: str = "sha256", **header: Any
) -> str:
    """Sign with a secret, regardless of the header."""
    key = secret.encode() if isinstance(secret, str) else secret
    start = f"{part({'alg': 'HS256', 'typ': 'JWT'} | header)}.{part(claims)}"
    return f"{start}.{part(hmac.digest(key, start.encode(), hash_name))}"


def unsigned(claims: Any, **header: Any) -> str:
    return f"{part(header)}.{part(claims)}."


@cache
def rsa_key(name: str = "ours", bits: int = 2_048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@cache
def ec_key(name: str = "ours") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rs(claims: Any, key: rsa.RSAPrivateKey | None = None, **header: Any) -> str:
    algorithm = RSAAlgorithm(RSAAlgorithm.SHA256)
    named = {
        name: value
        for name, value in ({"alg": "RS256", "kid": "one"} | header).items()
        if value is not None
    }
    start = f"{part(named)}.{part(claims)}"
    return f"{start}.{part(algorithm.sign(start.encode(), key or rsa_key()))}"


def es(claims: Any, key: ec.EllipticCurvePrivateKey | None = None, **header: Any) -> str:
    algorithm = ECAlgorithm(ECAlgorithm.SHA256)
    start = f"{part({'alg': 'ES256', 'kid': 'one'} | header)}.{part(claims)}"
    return f"{start}.{part(algorithm.sign(start.encode(), key or ec_key()))}"


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, **members: Any) -> dict[str, Any]:
    public = key.public_key()
    shown = (
        RSAAlgorithm.to_jwk(public, as_dict=True)
        if isinstance(public, rsa.RSAPublicKey)
        else ECAlgorithm.to_jwk(public, as_dict=True)
    )
    return {**shown, **members}


def forgeries() -> Iterator[tuple[str, str]]:
    """Return each forgery with its description, for a service with HS256, this SECRET, and no
    issuer or audience."""
    yield from _about_the_algorithm()
    yield from _about_the_key()
    yield from _about_times()
    yield from _about_the_tenant()
    yield from _about_the_form()


def _about_the_algorithm() -> Iterator[tuple[str, str]]:
    for name in (
        "none",
        "None",
        "NONE",
        "nOnE",
        "",
        "null",
        "HS256 ",
        "hs256",
        "RS256",
        "ES256",
        "HS384",
        "dir",
    ):
        yield f"alg {name!r} without a signature", unsigned(GOOD, alg=name)
    yield "alg none with a signature", hs(GOOD, alg="none")
    yield "no alg", unsigned(GOOD, typ="JWT")
    yield "alg a list", hs(GOOD, alg=["HS256"])
    yield "HS384 with the secret", hs(GOOD, hash_name="sha384", alg="HS384")
    yield "HS512 with the secret", hs(GOOD, hash_name="sha512", alg="HS512")
    yield "RS256 with an attacker's key", rs(GOOD, rsa_key("theirs"))
    yield "ES256 with an attacker's key", es(GOOD, ec_key("theirs"))
    yield "RS256 named, signed with the secret", hs(GOOD, alg="RS256")
    yield "HS256 named, signed with RSA", rs(GOOD, rsa_key("theirs"), alg="HS256")


def _about_the_key() -> Iterator[tuple[str, str]]:
    yield "another secret", hs(GOOD, "another-secret-another-secret-another")
    yield "an empty secret", hs(GOOD, b"")
    yield "kid that names a file", hs(GOOD, b"", kid="../../../../dev/null")
    yield "kid that is a query", hs(GOOD, "x", kid="x' UNION SELECT 'x")
    yield "kid a number", hs(GOOD, kid=1)
    yield (
        "an attacker's key in jwk",
        rs(GOOD, rsa_key("theirs"), jwk=jwk(rsa_key("theirs"), kid="one")),
    )
    yield (
        "an attacker's secret in jwk",
        hs(GOOD, "theirs", jwk={"kty": "oct", "k": part(b"theirs")}),
    )
    yield "an attacker's URL in jku", hs(GOOD, "theirs", jku="https://theirs.example/keys.json")
    yield "an attacker's URL in x5u", hs(GOOD, "theirs", x5u="https://theirs.example/cert.pem")
    yield "crit", hs(GOOD, crit=["exp"])
    yield "a payload beside the token", hs(GOOD, b64=False, crit=["b64"])


def _about_times() -> Iterator[tuple[str, str]]:
    yield "no exp", hs({"customerId": CUSTOMER})
    wrong: list[object] = ["9999999999", None, True, [], {}, [NOW + 3_600], -1, 0, NOW - 31]
    for value in wrong:
        yield f"exp {value!r}", hs(GOOD | {"exp": value})
    yield "exp NaN", hs(f'{{"customerId":"{CUSTOMER}","exp":NaN}}'.encode())
    yield (
        "exp in four hundred digits",
        hs(GOOD | {"exp": 10**400}),
    )  # too large for a float: caused a 500 once
    yield "exp without end", hs(f'{{"customerId":"{CUSTOMER}","exp":1e400}}'.encode())
    yield "nbf to come", hs(GOOD | {"nbf": NOW + 31})
    yield "nbf text", hs(GOOD | {"nbf": "0"})
    yield "iat to come", hs(GOOD | {"iat": NOW + 31})


def _about_the_tenant() -> Iterator[tuple[str, str]]:
    yield "no tenant", hs({"exp": NOW + 3_600})
    wrong = [
        "",
        ">",
        "*",
        "..",
        "../x",
        "a b",
        "a/b",
        "12345\n",
        "x" * 65,
        "é",
        "１２",
        "12345\0",
        "{}",
    ]
    for value in [*wrong, 12345, None, True, ["12345"], {"id": "12345"}, [], 1.5]:
        yield f"tenant {value!r}", hs(GOOD | {"customerId": value})
    yield (
        "a wrong tenant before a good one",
        hs(GOOD | {"customerId": None, "userId": CUSTOMER, "sub": CUSTOMER}),
    )
    yield (
        "a wrong user before a good subject",
        hs({"userId": 7, "sub": CUSTOMER, "exp": NOW + 3_600}),
    )
    yield "an audience where none is set", hs(GOOD | {"aud": "another-service"})
    yield "an audience that is not text", hs(GOOD | {"aud": [1]})
    yield "an issuer that is not text", hs(GOOD | {"iss": 1})
    yield "a scope that is not text", hs(GOOD | {"scope": ["read", "write"]})


def _about_the_form() -> Iterator[tuple[str, str]]:
    good = hs(GOOD)
    head, payload, signature = good.split(".")
    yield (
        "another payload under the signature",
        f"{head}.{part(GOOD | {'customerId': '6'})}.{signature}",
    )
    yield "another header under the signature", f"{part({'alg': 'HS256'})}.{payload}.{signature}"
    yield "no signature", f"{head}.{payload}."
    yield "half a signature", f"{head}.{payload}.{signature[:20]}"
    yield "a longer signature", f"{good}AAAA"
    yield (
        "the hash without the secret",
        f"{head}.{payload}.{part(hashlib.sha256(f'{head}.{payload}'.encode()).digest())}",
    )
    yield "claims that are a list", hs([GOOD])
    yield "claims that are text", hs("customerId")
    yield "claims that are not JSON", hs(b"customerId=12345")
    yield "claims that are not text", hs(b"\xff\xfe")
    yield "claims nested without end", hs(b'{"customerId":' * 50_000)
    for text in (
        "x",
        ".",
        "..",
        "...",
        "a.b.c",
        f"{good}.",
        f".{good}",
        f"{head}.{payload}",
        f"{head}={payload}",
    ):
        yield f"garbage {text[:10]!r}", text
    yield "padding", f"{good}="
    yield "a space in it", f"{head}. {payload}.{signature}"
    yield "too long", hs(GOOD | {"padding": "x" * 9_000})
    yield "a token in a token", f"{head}.{part(good.encode())}.{signature}"
