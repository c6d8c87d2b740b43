"""Settings of tokens. A service with tokens inherits them: `class Settings(JwtSettings)`.

The settings decide how a token is verified; the token itself never does.
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from keyhouse.advice.http_arguments import TENANT_CLAIMS
from keyhouse.auth.jwks import check_location
from keyhouse.auth.limits import SECRET_BYTES_MIN, SECRET_CHARS_MIN
from keyhouse.errors import UsageError
from keyhouse.settings.parser import setting

_LEEWAY_SECONDS_MAX = 300
"""Clocks of servers differ by seconds; a token must not live on for long."""

TENANT_PATTERN: Final = r"[A-Za-z0-9_-]{1,64}"

Names = tuple[str, ...]


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    jwt_algorithm: Annotated[
        Literal["HS256", "RS256", "PS256", "ES256", "ES384", "EdDSA"],
        setting("How tokens are signed: HS256 with a secret, all others with a key of `jwks`."),
    ] = "HS256"
    jwt_secret: Annotated[
        str | None,
        setting(
            "The secret of HS256, at least 32 bytes. By default it is created in the data folder.",
            secret=True,
        ),
    ] = None
    jwks: Annotated[
        str | None,
        setting("The key set (JWKS), if not HS256: a file, or a URL with https://.", path=True),
    ] = None
    jwks_cache_seconds: Annotated[
        float, setting("Time after which the key set is fetched again.")
    ] = 3_600.0
    jwks_refresh_min_seconds: Annotated[
        float, setting("Minimum time between two fetches, however many unknown keys tokens name.")
    ] = 30.0
    jwt_issuer: Annotated[str | None, setting("The issuer (`iss`) that a token must name.")] = None
    jwt_audience: Annotated[
        str | None,
        setting("The audience (`aud`) that a token must name. By default it must name none."),
    ] = None
    jwt_leeway_seconds: Annotated[float, setting("Allowed difference to the issuer's clock.")] = (
        30.0
    )
    jwt_tenant_claims: Annotated[
        Names,
        setting("Claims that name the tenant. The first one that the token has is used."),
    ] = TENANT_CLAIMS
    jwt_tenants_claim: Annotated[
        str | None,
        setting("Claim with a list of further tenants that the token reaches, if there is one."),
    ] = None
    jwt_scopes: Annotated[Names, setting("Scopes of a token without a `scope` claim.")] = (
        "read",
        "write",
    )
    jwt_cookie: Annotated[str, setting("The cookie that may carry the token.")] = "auth_token"

    def __post_init__(self) -> None:
        if self.jwt_algorithm == "HS256":
            if self.jwks is not None:
                raise UsageError("HS256 uses no key set: set jwt_algorithm to that of its keys.")
            if self.jwt_secret is not None:
                check_secret(self.jwt_secret)
        elif self.jwt_secret is not None:
            raise UsageError(
                "Only HS256 uses a secret: remove jwt_secret.", algorithm=self.jwt_algorithm
            )
        elif self.jwks is None:
            raise UsageError(
                "This algorithm needs a key set: set jwks.", algorithm=self.jwt_algorithm
            )
        else:
            check_location(self.jwks)
        if not self.jwt_tenant_claims:
            raise UsageError("A token must name its tenant: set jwt_tenant_claims.")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", self.jwt_cookie):
            raise UsageError(
                "The name of a cookie has letters, digits, _ . and - only.", cookie=self.jwt_cookie
            )
        if not 0 <= self.jwt_leeway_seconds <= _LEEWAY_SECONDS_MAX:
            raise UsageError(
                f"jwt_leeway_seconds must be between 0 and {_LEEWAY_SECONDS_MAX}.",
                leeway=self.jwt_leeway_seconds,
            )
        if not (self.jwks_cache_seconds > 0 and self.jwks_refresh_min_seconds > 0):
            raise UsageError("The times of a key set must be greater than 0.")


def check_secret(secret: str, **where: str) -> None:
    """Raise UsageError, without the secret, if it can be guessed."""
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise UsageError(
            "The secret that signs tokens is too short: create one with `openssl rand -hex 32`.",
            least=SECRET_BYTES_MIN,
            **where,
        )
    if len(set(secret)) < SECRET_CHARS_MIN:
        raise UsageError(
            "The secret that signs tokens is easily guessed:"
            " create one with `openssl rand -hex 32`.",
            different_characters=len(set(secret)),
            least=SECRET_CHARS_MIN,
            **where,
        )
