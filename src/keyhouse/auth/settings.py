"""What an operator sets of tokens. A system with tokens makes its own settings of these: `class Settings(JwtSettings)`.

How a token is verified is decided here and never by the token.
"""

import re
from typing import Annotated, Literal

import msgspec

from keyhouse.auth.jwks_fetch import source
from keyhouse.errors import UsageError
from keyhouse.limits import SECRET_BYTES_MIN
from keyhouse.settings.parser import setting

Names = tuple[str, ...]


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    jwt_algorithm: Annotated[
        Literal["HS256", "RS256", "ES256"],
        setting(
            "How tokens are signed: HS256 by a secret, RS256 and ES256 by a key of the set in `jwt_keys`."
        ),
    ] = "HS256"
    jwt_secret: Annotated[
        str | None,
        setting(
            "The secret of HS256, 32 bytes or more. Without it one is made in the data folder.",
            secret=True,
        ),
    ] = None
    jwt_keys: Annotated[
        str | None,
        setting(
            "The key set (JWKS) of RS256 and ES256: a file, or a URL that starts with https://."
        ),
    ] = None
    jwt_keys_seconds: Annotated[float, setting("After how long a key set is fetched again.")] = (
        3_600.0
    )
    jwt_keys_pause_seconds: Annotated[
        float,
        setting("The least time between two fetches, however many unknown keys are asked for."),
    ] = 30.0
    jwt_issuer: Annotated[str | None, setting("The issuer that a token must name, in `iss`.")] = (
        None
    )
    jwt_audience: Annotated[
        str | None,
        setting(
            "The audience that a token must name, in `aud`. Without it a token must name none."
        ),
    ] = None
    jwt_leeway_seconds: Annotated[float, setting("How far the issuer's clock may be off.")] = 30.0
    jwt_tenant_claims: Annotated[
        Names,
        setting(
            "The claims that may name the tenant. The first that a token has counts, and no other."
        ),
    ] = ("customerId", "userId", "sub")
    jwt_scopes: Annotated[Names, setting("The scopes of a token that has no claim `scope`.")] = (
        "read",
        "write",
    )
    jwt_cookie: Annotated[str, setting("The cookie that a token may come in.")] = "auth_token"

    def __post_init__(self) -> None:
        if self.jwt_algorithm == "HS256":
            if self.jwt_keys is not None:
                raise UsageError(
                    "HS256 has a secret and no key set: set jwt_algorithm to RS256 or ES256."
                )
            if self.jwt_secret is not None:
                check_secret(self.jwt_secret)
        elif self.jwt_secret is not None:
            raise UsageError(
                "Only HS256 has a secret: take jwt_secret out.", algorithm=self.jwt_algorithm
            )
        elif self.jwt_keys is None:
            raise UsageError(
                "This algorithm needs a key set: set jwt_keys.", algorithm=self.jwt_algorithm
            )
        else:
            source(self.jwt_keys)
        if not self.jwt_tenant_claims:
            raise UsageError("A token must name its tenant somewhere: set jwt_tenant_claims.")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", self.jwt_cookie):
            raise UsageError(
                "A cookie's name has letters, digits, _ . and - only.", cookie=self.jwt_cookie
            )
        if not 0 <= self.jwt_leeway_seconds <= 300:
            raise UsageError(
                "A leeway is between 0 and 300 seconds.", leeway=self.jwt_leeway_seconds
            )
        if not (self.jwt_keys_seconds > 0 and self.jwt_keys_pause_seconds > 0):
            raise UsageError("The times of a key set must be greater than nothing.")


def check_secret(secret: str, **where: str) -> None:
    """UsageError when a secret is so short that it could be guessed. It is never part of the error."""
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise UsageError(
            "The secret that signs tokens is too short: make one with `openssl rand -hex 32`.",
            least=SECRET_BYTES_MIN,
            **where,
        )
