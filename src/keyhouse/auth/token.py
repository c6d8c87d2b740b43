"""One token: its signature, its times, for whom it is, and whom it names. The claims have a schema of their own.

A library verifies the signature, by the algorithm that the settings name: what the token's header asks for is compared and
never obeyed. Headers that point to keys (`jku`, `x5u`, `jwk`) are not read.
"""

import base64
import re
from typing import Any

import jwt
import msgspec

from keyhouse.auth.jwks import Keys
from keyhouse.auth.settings import JwtSettings
from keyhouse.clock import Clock
from keyhouse.errors import TokenError

_COMPACT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
"""Three parts, without padding: a library would take more than this."""


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Claims(msgspec.Struct):
    """Times are read as floats: an integer that is too large for one is refused here, and is nothing to reckon with."""

    exp: float
    nbf: float | None = None
    iat: float | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    scope: str | None = None


class Verified(msgspec.Struct, frozen=True):
    """What a token says, once it is believed: from when, and until when (milliseconds, with the leeway)."""

    tenant: str
    scopes: frozenset[str]
    starts: float
    ends: float

    def check(self, now: int) -> None:
        """TokenError unless the token is valid now."""
        if self.starts <= now < self.ends:
            return
        if now >= self.ends:
            raise TokenError("The token has expired.")
        if now < self.starts:
            raise TokenError("The token is not valid yet.")


class Verifier:
    """Tokens of one kind, for one sort of tenants: `tenant_pattern` is what a tenant's name must be, as a whole."""

    def __init__(
        self, settings: JwtSettings, keys: Keys, *, tenant_pattern: str, clock: Clock
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._tenant = re.compile(tenant_pattern)
        self._clock = clock
        self._jws = jwt.PyJWS()

    async def verify(self, token: bytes) -> Verified:
        """What the token says; TokenError when it is not to be believed, for whatever reason."""
        payload = await self._payload(token)
        try:
            claims = msgspec.json.decode(payload, type=_Claims)
            named: Any = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise TokenError(
                "The token's claims are not what they must be: exp is needed, as a number; scope is text."
            ) from None
        self._check_parties(claims)
        verified = self._verified(claims, self._tenant_of(named))
        verified.check(self._clock.now())
        return verified

    async def _payload(self, token: bytes) -> bytes:
        if not _COMPACT.fullmatch(token):
            raise TokenError("The token is not a JSON Web Token.")
        header = _header(token)
        if header.alg != self._settings.jwt_algorithm:
            raise TokenError("The token is not signed by the algorithm that is set here.")
        if header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET:
            raise TokenError("The token asks for an extension that is not known here.")
        key = await self._keys.find(header.kid)
        try:
            found = self._jws.decode_complete(token, key, algorithms=[self._settings.jwt_algorithm])
        except (jwt.PyJWTError, ValueError):
            raise TokenError("The token's signature does not hold.") from None
        payload: bytes = found["payload"]
        return payload

    def _check_parties(self, claims: _Claims) -> None:
        issuer, audience = self._settings.jwt_issuer, self._settings.jwt_audience
        if issuer is not None and claims.iss != issuer:
            raise TokenError("The token is not from the issuer that is set here.")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if (audience is None and audiences) or (audience is not None and audience not in audiences):
            raise TokenError("The token is for another audience than is set here.")

    def _tenant_of(self, claims: dict[str, Any]) -> str:
        """The first of the claims that is there counts: one that is there and wrong is not made up for by the next."""
        for name in self._settings.jwt_tenant_claims:
            if name in claims:
                tenant = claims[name]
                if isinstance(tenant, str) and self._tenant.fullmatch(tenant):
                    return tenant
                raise TokenError("The token names its tenant in a way that can't be.", claim=name)
        raise TokenError("The token names no tenant.", claims=self._settings.jwt_tenant_claims)

    def _verified(self, claims: _Claims, tenant: str) -> Verified:
        leeway = self._settings.jwt_leeway_seconds
        starts = max(claims.nbf or 0, claims.iat or 0)
        scopes = self._settings.jwt_scopes if claims.scope is None else claims.scope.split()
        return Verified(
            tenant, frozenset(scopes), (starts - leeway) * 1_000, (claims.exp + leeway) * 1_000
        )


def _header(token: bytes) -> _Header:
    try:
        text = token.partition(b".")[0]
        return msgspec.json.decode(
            base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)), type=_Header
        )
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        raise TokenError("The token is not a JSON Web Token.") from None
