"""Tokens for development: signed with the service's own secret, short-lived, and no more than they are asked to be."""

import re
from collections.abc import Sequence
from pathlib import Path

import jwt

from keyhouse.auth.jwt_auth import TENANT_PATTERN
from keyhouse.auth.secret import load_or_create_secret
from keyhouse.auth.settings import JwtSettings
from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import UsageError


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
    """A token that this service accepts, for a tenant. Without `scopes` it has those of a token that names none.

    UsageError when the service's tokens are signed elsewhere (RS256, ES256), or the tenant can't be one.
    """
    if settings.jwt_algorithm != "HS256":
        raise UsageError(
            "Only whoever has the private key makes these tokens.", algorithm=settings.jwt_algorithm
        )
    if not re.fullmatch(tenant_pattern, tenant):
        raise UsageError("No tenant can be called so.", tenant=tenant, pattern=tenant_pattern)
    if not 0 < seconds <= 366 * 86_400:
        raise UsageError(
            "A token lives for more than nothing, and a year at most.", seconds=seconds
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
    return jwt.encode(
        claims, settings.jwt_secret or load_or_create_secret(data, system), algorithm="HS256"
    )
