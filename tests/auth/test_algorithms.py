"""Algorithms of tokens with a key set: each is verified by its own kind of key, and no other."""

import asyncio
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from keyhouse.auth import JwtAuth, JwtSettings
from keyhouse.auth.jwks import KeySet, read_keys
from keyhouse.clock import ManualClock
from keyhouse.errors import TokenError, UsageError
from tests.auth.support.forged_tokens import CUSTOMER, GOOD, rsa_key

P384, ED25519 = ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()
ED448 = ed448.Ed448PrivateKey.generate()
SIGNERS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "PS256": ("PS256", rsa_key(), RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True)),
    "ES384": ("ES384", P384, ECAlgorithm.to_jwk(P384.public_key(), as_dict=True)),
    "Ed25519": ("EdDSA", ED25519, OKPAlgorithm.to_jwk(ED25519.public_key(), as_dict=True)),
    "Ed448": ("EdDSA", ED448, OKPAlgorithm.to_jwk(ED448.public_key(), as_dict=True)),
}


def auth(algorithm: Any, *entries: dict[str, Any]) -> JwtAuth:
    async def load() -> bytes:
        return json.dumps({"keys": entries}).encode()

    keys = KeySet(load, algorithm, cache_seconds=3_600, refresh_min_seconds=30)
    settings = JwtSettings(jwt_algorithm=algorithm, jwks="keys.json")
    return JwtAuth(settings, keys, clock=ManualClock())


async def tenant(auth: JwtAuth, token: str) -> str:
    return (await auth.authenticate([(b"authorization", f"Bearer {token}".encode())])).tenant


@pytest.mark.parametrize("name", SIGNERS)
def test_a_token_of_each_algorithm_is_verified_with_its_key(name: str) -> None:
    algorithm, key, entry = SIGNERS[name]
    token = jwt.encode(GOOD, key, algorithm=algorithm, headers={"kid": "one"})
    jwk = {**entry, "kid": "one"}
    assert asyncio.run(tenant(auth(algorithm, jwk), token)) == CUSTOMER
    with pytest.raises(TokenError, match="signature"):
        asyncio.run(tenant(auth(algorithm, jwk), token[:-6] + "AAAAAA"))


def test_a_private_key_in_the_set_verifies_and_is_not_kept() -> None:
    entry = {**OKPAlgorithm.to_jwk(ED25519, as_dict=True), "kid": "one"}
    [key] = read_keys(json.dumps({"keys": [entry]}).encode(), "EdDSA").values()
    assert isinstance(key, ed25519.Ed25519PublicKey)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
def test_a_key_of_another_kind_is_skipped(algorithm: str) -> None:
    kinds = {"R": "RSA", "P": "RSA", "E": "EC"}
    kind = "OKP" if algorithm == "EdDSA" else kinds[algorithm[0]]
    wrong = [
        entry
        for each, _, entry in SIGNERS.values()
        if entry["kty"] != kind or (kind == "EC" and each != algorithm)
    ]
    with pytest.raises(UsageError, match="no key for this algorithm"):
        read_keys(json.dumps({"keys": wrong}).encode(), algorithm)
