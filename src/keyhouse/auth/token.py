"""Tokens: finding one in a request, and verifying its signature, times, parties and tenant.

PyJWT verifies the signature, by the algorithm of the settings: the token's header is compared with
it and never obeyed. Headers that point to keys (`jku`, `x5u`, `jwk`) are not read.
"""

import base64
import re
from typing import Any, Protocol

import jwt
import msgspec

from keyhouse.auth.caller import HeaderPairs
from keyhouse.auth.limits import TOKEN_BYTES_MAX
from keyhouse.auth.settings import JwtSettings
from keyhouse.clock import Clock
from keyhouse.errors import TokenError

_COMPACT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
"""Three parts without padding: PyJWT would accept more than this."""


class Keys(Protocol):
    """The keys that verify tokens."""

    version: int
    """Changes whenever a key has changed."""

    def refresh_if_stale(self) -> None:
        """Start a refresh if the cached keys are stale."""
        ...

    async def check(self) -> None:
        """Raise UnavailableError if there is no key, so that no token can be verified."""
        ...

    async def find(self, key_id: str | None) -> Any:
        """Return the key with this id, as PyJWT takes it. Raises TokenError if it is unknown."""
        ...


class Credentials:
    """Finds the token of a request: in the cookie, or in `Authorization: Bearer`.

    Ambiguous requests are rejected: two cookies of the name, two headers, or a cookie and a header
    with different tokens.
    """

    __slots__ = ("_cookie",)

    def __init__(self, cookie: str) -> None:
        self._cookie = cookie.encode() + b"="

    def find(self, headers: HeaderPairs) -> tuple[bytes, bool]:
        """Return the token, and whether it is from the cookie. Raises TokenError if there is none,
        or more than one."""
        by_name = dict(headers)
        bearer = by_name.get(b"authorization")
        if bearer is None or b"cookie" in by_name or len(by_name) != len(headers):
            return self._find_all(headers)
        return _checked(_bearer_token(bearer)), False

    def _find_all(self, headers: HeaderPairs) -> tuple[bytes, bool]:
        cookies: list[bytes] = []
        bearers: list[bytes] = []
        for name, value in headers:
            if name == b"authorization":
                bearers += _bearer_token(value)
            elif name == b"cookie" and self._cookie in value:
                cookies += self._cookie_tokens(value)
        tokens = cookies or bearers
        if len(cookies) > 1 or len(bearers) > 1 or (bearers and bearers != tokens):
            raise TokenError("There is more than one token: send one.")
        return _checked(tokens), bool(cookies)

    def _cookie_tokens(self, header: bytes) -> list[bytes]:
        start = self._cookie
        return [
            part.removeprefix(start)
            for each in header.split(b";")
            if (part := each.strip()).startswith(start)
        ]


def _bearer_token(header: bytes) -> list[bytes]:
    """Return the token, or nothing for another scheme, which is meant for a proxy."""
    scheme, _, token = header.partition(b" ")
    return [token.strip()] if scheme.lower() == b"bearer" else []


def _checked(tokens: list[bytes]) -> bytes:
    if not tokens:
        raise TokenError(
            "There is no token: send one as a bearer token, or in the cookie.", missing=True
        )
    if len(tokens[0]) > TOKEN_BYTES_MAX:
        raise TokenError("The token is too long.", limit=TOKEN_BYTES_MAX)
    return tokens[0]


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Claims(msgspec.Struct):
    """Times are floats: an integer that is too large for one is rejected here."""

    exp: float
    nbf: float | None = None
    iat: float | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    scope: str | None = None


class VerifiedToken(msgspec.Struct, frozen=True):
    """The claims of a verified token. Times are in milliseconds, with the leeway."""

    tenant: str
    subject: str
    roles: frozenset[str]
    scopes: frozenset[str]
    valid_from: float
    valid_until: float
    tenants: frozenset[str] = frozenset()

    def check(self, now: int) -> None:
        """Raise TokenError unless the token is valid now."""
        if self.valid_from <= now < self.valid_until:
            return
        if now >= self.valid_until:
            raise TokenError("The token has expired.")
        raise TokenError("The token is not valid yet.")


class TokenVerifier:
    """Verifies tokens. `tenant_pattern` must match the whole name of a tenant."""

    def __init__(
        self, settings: JwtSettings, keys: Keys, *, tenant_pattern: str, clock: Clock
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._tenant = re.compile(tenant_pattern)
        self._clock = clock
        self._jws = jwt.PyJWS()

    async def verify(self, token: bytes) -> VerifiedToken:
        """Raises TokenError if the token is not accepted, for whatever reason."""
        payload = await self._payload(token)
        try:
            claims = msgspec.json.decode(payload, type=_Claims)
            by_name: Any = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise TokenError(
                "Malformed claims in the token: exp must be a number, scope a text."
            ) from None
        self._check_parties(claims)
        verified = self._verified(claims, by_name)
        verified.check(self._clock.now())
        return verified

    async def _payload(self, token: bytes) -> bytes:
        if not _COMPACT.fullmatch(token):
            raise TokenError("The token is not a JSON Web Token.")
        header = _header(token)
        if header.alg != self._settings.jwt_algorithm:
            raise TokenError("The token is signed with another algorithm than jwt_algorithm.")
        if header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET:
            raise TokenError("The token requires an unknown extension.")
        key = await self._keys.find(header.kid)
        try:
            decoded = self._jws.decode_complete(
                token, key, algorithms=[self._settings.jwt_algorithm]
            )
        except (jwt.PyJWTError, ValueError):
            raise TokenError(
                "The token's signature is invalid: another key or secret signed it."
            ) from None
        payload: bytes = decoded["payload"]
        return payload

    def _check_parties(self, claims: _Claims) -> None:
        issuer, audience = self._settings.jwt_issuer, self._settings.jwt_audience
        if issuer is not None and claims.iss != issuer:
            raise TokenError("The token is from another issuer than jwt_issuer.")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if (audience is None and audiences) or (audience is not None and audience not in audiences):
            raise TokenError("The token is for another audience than jwt_audience.")

    def _tenant_of(self, claims: dict[str, Any]) -> str:
        """Read the first tenant claim that is present; an invalid one is not skipped."""
        for name in self._settings.jwt_tenant_claims:
            if name in claims:
                tenant = claims[name]
                if isinstance(tenant, str) and self._tenant.fullmatch(tenant):
                    return tenant
                raise TokenError("Malformed tenant claim.", claim=name)
        raise TokenError("The token names no tenant.", claims=self._settings.jwt_tenant_claims)

    def _tenants_of(self, claims: dict[str, Any]) -> frozenset[str]:
        """Read the list of further tenants; TokenError if it is not a list of names."""
        name = self._settings.jwt_tenants_claim
        tenants = claims.get(name, []) if name else []
        if not isinstance(tenants, list) or not all(
            isinstance(each, str) and self._tenant.fullmatch(each) for each in tenants
        ):
            raise TokenError("Malformed list of tenants.", claim=name)
        return frozenset(tenants)

    def _verified(self, claims: _Claims, by_name: dict[str, Any]) -> VerifiedToken:
        leeway = self._settings.jwt_leeway_seconds
        starts = max(claims.nbf or 0, claims.iat or 0)
        scopes = self._settings.jwt_scopes if claims.scope is None else claims.scope.split()
        subject, roles = by_name.get("sub"), by_name.get("roles")
        return VerifiedToken(
            tenant=self._tenant_of(by_name),
            subject=subject if isinstance(subject, str) else "",
            roles=frozenset(
                role for role in (roles if isinstance(roles, list) else ()) if isinstance(role, str)
            ),
            scopes=frozenset(scopes),
            valid_from=(starts - leeway) * 1_000,
            valid_until=(claims.exp + leeway) * 1_000,
            tenants=self._tenants_of(by_name),
        )


def _header(token: bytes) -> _Header:
    try:
        text = token.partition(b".")[0]
        return msgspec.json.decode(
            base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)), type=_Header
        )
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        raise TokenError("The token is not a JSON Web Token.") from None
