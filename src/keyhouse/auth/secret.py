"""The secret of a service that was given none, and the tokens signed with it.

The secret is random, created once, in a file that only its owner can read. It is never logged and
never part of an error.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

import jwt

from keyhouse.auth.settings import TENANT_PATTERN, JwtSettings, check_secret
from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import UsageError


def secret_path(folder: Path, system: str = "", kind: str = "jwt") -> Path:
    """Return the file of a secret in a data folder."""
    return folder / (f"{system}-{kind}.secret" if system else f"{kind}.secret")


def load_or_create_secret(
    folder: Path, system: str = "", *, make: bool = True, kind: str = "jwt"
) -> str:
    """Return the secret in the file `<system>-<kind>.secret`, which is created if it is missing.

    Concurrent callers get the same one. Each system has its own, so that a token of one is invalid
    for another, and one for each kind of use. Raises UsageError if other users can read the file,
    if this user cannot, or if it is missing and `make` is false.
    """
    path = secret_path(folder, system, kind)
    try:
        if not path.exists():
            if not make:
                raise UsageError(
                    "There is no secret yet: start the service once, or pass its data folder.",
                    file=str(path),
                )
            _create(path)
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except OSError as error:
        raise UsageError(
            "The secret that signs tokens cannot be read or created: run as the service's user, "
            "and pass its data folder.",
            file=str(path),
            reason=error.strerror,
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise UsageError(
            "Other users can read the secret: delete it, or chmod 600 it if none has read it.",
            file=str(path),
        )
    try:
        secret = text.decode("ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(
            "The file of the secret is not text: delete it, and a new one is created.",
            file=str(path),
        ) from None
    check_secret(secret, file=str(path))
    return secret


def mint(
    settings: JwtSettings,
    data: Path,
    tenant: str,
    *,
    system: str = "",
    scopes: Sequence[str] | None = None,
    seconds: float = 12 * 3_600,
    tenant_pattern: str = TENANT_PATTERN,
    clock: Clock | None = None,
) -> str:
    """Return a token for a tenant or space, which the service `system` accepts for `seconds`.

    For a login of your own, which knows its user and which tenant is theirs. `settings` and `data`
    are those of the service: the secret of `JwtSettings(jwt_secret=…)`, else the one in the data
    folder, which is created if there is none. Without `scopes` the token names none, and has those
    of the setting `jwt_scopes`.

    Raises UsageError if the service's tokens are signed elsewhere (not HS256), if the tenant's name
    is invalid, or if the lifetime is longer than a year.
    """
    if settings.jwt_algorithm != "HS256":
        raise UsageError(
            "These tokens need the private key of their issuer.", algorithm=settings.jwt_algorithm
        )
    if not re.fullmatch(tenant_pattern, tenant):
        raise UsageError(
            "Invalid tenant name: the name of a tenant or space must match the pattern.",
            tenant=tenant,
            pattern=tenant_pattern,
        )
    if not 0 < seconds <= 366 * 86_400:
        raise UsageError(
            "The lifetime of a token must be greater than 0 and at most a year.", seconds=seconds
        )
    now = (clock or SystemClock()).now() // 1_000
    claims: dict[str, object] = {
        settings.jwt_tenant_claims[0]: tenant,
        "iat": now,
        "exp": now + int(seconds),
    }
    if scopes is not None:
        claims["scope"] = " ".join(scopes)
    if settings.jwt_issuer is not None:
        claims["iss"] = settings.jwt_issuer
    if settings.jwt_audience is not None:
        claims["aud"] = settings.jwt_audience
    secret = settings.jwt_secret or load_or_create_secret(data, system)
    return jwt.encode(claims, secret, algorithm="HS256")


def _create(path: Path) -> None:
    """Write a secret to a temporary file, then link it: no reader sees half of one, and the first
    one stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # as `keyhouse serve` does
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: its secret counts
            os.link(draft, path)
    finally:
        draft.unlink()
