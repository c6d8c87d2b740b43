"""NATS users with keys: seeds, and JWTs of operator, account and user as `nsc` signs them."""

import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nkeys

from tests.support.nats_server_configs import ConfiguredServer, configured

UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
STORED = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Signer:
    """A key owner: an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.seed: str = nkeys.encode_seed(secrets.token_bytes(32), kind).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public: str = self._pair.public_key.decode()

    def jwt(self, about: "Signer", kind: str, **claims: Any) -> str:
        said = {
            "jti": secrets.token_hex(8),
            "iat": int(time.time()),
            "iss": self.public,
            "sub": about.public,
        }
        said |= {"name": kind, "nats": {"type": kind, "version": 2, **claims}}
        text = f"{_encoded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encoded(said)}"
        return f"{text}.{_text(self._pair.sign(text.encode()))}"


def operated(creds: Path) -> dict[str, Any]:
    """Return the configuration of a server with an operator and one account; write its user's
    credentials to `creds`."""
    operator, account, system, user = (
        Signer(kind)
        for kind in (
            nkeys.PREFIX_BYTE_OPERATOR,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_USER,
        )
    )
    limits = UNLIMITED | {"wildcards": True}
    jwt = account.jwt(user, "user", subs=-1, data=-1, payload=-1)
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return {
        "operator": operator.jwt(operator, "operator", system_account=system.public),
        "system_account": system.public,
        "resolver": "MEMORY",
        "resolver_preload": {
            account.public: operator.jwt(account, "account", limits=limits | STORED),
            system.public: operator.jwt(system, "account", limits=limits),
        },
    }


@contextmanager
def by_key(folder: Path) -> Iterator[tuple[ConfiguredServer, Path]]:
    """Run a server that lists a user's public key; yield it and the file with the user's seed."""
    user = Signer(nkeys.PREFIX_BYTE_USER)
    file = folder / "ann.nk"
    file.write_text(f"{user.seed}\n")
    with configured(folder / "nats", authorization={"users": [{"nkey": user.public}]}) as server:
        yield server, file


@contextmanager
def by_jwt(folder: Path) -> Iterator[tuple[ConfiguredServer, Path]]:
    """Run a server that trusts an operator; yield it and the credentials of a user."""
    file = folder / "ann.creds"
    with configured(folder / "nats", **operated(file)) as server:
        yield server, file


def _encoded(part: dict[str, Any]) -> str:
    return _text(json.dumps(part).encode())


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
