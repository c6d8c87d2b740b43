"""NATS credentials files: users without a password.

Two kinds are in use: the `.creds` file that `nsc` writes, a signed JWT with the seed of the user's
key, where an operator's accounts define the permissions; and the seed alone, where the server's own
configuration lists the user's public key (`nkey`).

The embedded server (`nats_auth`) has one user and a password of each start, in the file of its
configuration, which only the user that runs it can read.
"""

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from keyhouse.errors import UsageError

__all__ = ["embedded_url", "sign_in", "with_embedded_user"]

EMBEDDED_USER: Final = "keyhouse"
EMBEDDED_CONFIGURATION: Final = Path("nats", "nats-server.json")
"""The configuration of the embedded server, in the data folder."""

DATA_VARIABLE: Final = "KEYHOUSE_DATA"
DATA_DEFAULT: Final = "keyhouse-data"

_JWT: Final = b"-----BEGIN NATS USER JWT-----"
_SEED_OF_JWT: Final = b"-----BEGIN USER NKEY SEED-----"
_SEED_BYTES: Final = 58
_SEED_START: Final = b"SU"


def sign_in(path: str) -> dict[str, Any]:
    """Return nats-py's options for a credentials file.

    The file is read now, so that an invalid one raises UsageError before anything is connected.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(
            "The credentials file can't be opened: check its name, and who may read it.",
            file=path,
            reason=error.strerror,
        ) from None
    if find_spec("nkeys") is None:
        raise ImportError("A NATS credentials file needs nkeys: pip install 'nats-py[nkeys]'")
    if _JWT in text and _SEED_OF_JWT in text:
        return {"user_credentials": path}
    seed = text.strip()
    if len(seed) == _SEED_BYTES and seed.startswith(_SEED_START):
        return {"nkeys_seed": path}
    raise UsageError(
        "The file contains no credentials of a NATS user: a JWT with its seed, or a seed alone.",
        file=path,
    )


def embedded_url(data: Path | None = None) -> str | None:
    """Return the URL of the embedded server of a data folder, with its user and password; None if
    none has run there, or if this user may not read its configuration.

    The data folder is by default that of `KEYHOUSE_DATA`, or `keyhouse-data`.
    """
    folder = data or Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT)
    try:
        configuration = json.loads((folder / EMBEDDED_CONFIGURATION).read_text())
        password = configuration.get("authorization", {}).get("password")
        user = "" if password is None else f"{EMBEDDED_USER}:{password}@"
        return f"nats://{user}127.0.0.1:{int(configuration['port'])}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def with_embedded_user(url: str, data: Path | None = None) -> str:
    """Return the URL with the user and password of the embedded server, if it is that server's and
    names no user."""
    address = re.fullmatch(r"(?:nats://)?(?:127\.0\.0\.1|localhost):(\d+)/?", url)
    embedded = None if address is None else embedded_url(data)
    if address is None or embedded is None or not embedded.endswith(f":{address[1]}"):
        return url
    return embedded
