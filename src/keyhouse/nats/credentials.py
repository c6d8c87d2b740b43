"""NATS credentials files: users without a password.

Two kinds are in use: the `.creds` file that `nsc` writes, a signed JWT with the seed of the user's
key, where an operator's accounts define the permissions; and the seed alone, where the server's own
configuration lists the user's public key (`nkey`).
"""

from importlib.util import find_spec
from typing import Any, Final

from keyhouse.errors import UsageError

__all__ = ["sign_in"]

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
