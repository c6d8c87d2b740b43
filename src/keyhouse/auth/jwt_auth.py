"""Authentication by JWT.

A verified token is cached by its hash, so that the next request with it costs a lookup. Its times,
and whether the keys have changed since, are checked every time. The cache is bounded and contains
no token.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import structlog

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.auth.jwks import KeySet, jwks_loader
from keyhouse.auth.limits import TOKENS_CACHED_MAX
from keyhouse.auth.secret import load_or_create_secret
from keyhouse.auth.settings import TENANT_PATTERN, JwtSettings
from keyhouse.auth.token import Credentials, Keys, TokenVerifier, VerifiedToken
from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import TokenError, UsageError

_log = structlog.get_logger("keyhouse.auth")

_SHA256: Final = sha256()
"""Copied for each token: to look the algorithm up costs as much as to hash one."""

_COOKIE: Final = b"c"
"""Follows the hash of a token from a cookie. Before the token, its sender could write it."""


class SecretKey:
    """One secret, whatever key id a token names."""

    version = 0

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def refresh_if_stale(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def find(self, key_id: str | None) -> bytes:
        return self._secret


class JwtAuth(Authenticator):
    def __init__(
        self,
        settings: JwtSettings,
        keys: Keys,
        *,
        tenant_pattern: str = TENANT_PATTERN,
        clock: Clock | None = None,
        cached_max: int = TOKENS_CACHED_MAX,
        secret: bytes | None = None,
    ) -> None:
        self.secret = secret
        """The secret of HS256; None with a key set."""
        self._clock = clock or SystemClock()
        self._keys = keys
        self._credentials = Credentials(settings.jwt_cookie)
        self._verifier = TokenVerifier(
            settings, keys, tenant_pattern=tenant_pattern, clock=self._clock
        )
        self._cookie = settings.jwt_cookie
        self._cache: dict[bytes, tuple[VerifiedToken, Caller]] = {}
        self._cached_max = cached_max
        self._cached_version = keys.version

    @property
    def schemes(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": self._cookie},
        }

    async def ready(self) -> None:
        """Raise UnavailableError while no token can be verified. For `ServiceSpec.ready`."""
        await self._keys.check()

    def cached_caller(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """Return the caller of a token that was verified before and is still valid."""
        bearer = headers.get(b"authorization")
        hasher = _SHA256.copy()
        if b"cookie" in headers:
            try:
                token, from_cookie = self._credentials.find([*headers.items()])
            except TokenError:
                return None
            hasher.update(token)
            digest = hasher.digest() + (_COOKIE if from_cookie else b"")
        elif bearer is None or bearer[:7] != b"Bearer ":
            return None
        else:
            hasher.update(bearer[7:])
            digest = hasher.digest()
        self._keys.refresh_if_stale()
        cached = self._cache.get(digest)
        if cached is None or self._cached_version != self._keys.version:
            return None
        return (
            cached[1] if cached[0].valid_from <= self._clock.now() < cached[0].valid_until else None
        )

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        token, from_cookie = self._credentials.find(headers)
        keys = self._keys
        keys.refresh_if_stale()
        if self._cached_version != keys.version:
            self._cache.clear()
            self._cached_version = keys.version
        digest = sha256(token).digest() + (_COOKIE if from_cookie else b"")
        cached = self._cache.get(digest)
        if cached is not None:
            cached[0].check(self._clock.now())
            return cached[1]
        version = keys.version
        verified = await self._verifier.verify(token)
        caller = Caller(
            tenant=verified.tenant,
            subject=verified.subject,
            roles=verified.roles,
            scopes=verified.scopes,
            tenants=verified.tenants,
            from_cookie=from_cookie,
        )
        if version == keys.version:  # else the keys changed meanwhile: verify it again next time
            while len(self._cache) >= self._cached_max:
                del self._cache[next(iter(self._cache))]
            self._cache[digest] = (verified, caller)
        return caller


def jwt_auth(
    settings: JwtSettings,
    data: Path,
    *,
    system: str = "",
    tenant_pattern: str = TENANT_PATTERN,
    clock: Clock | None = None,
) -> JwtAuth:
    """Return the authenticator of the settings. HS256 without a secret creates one in `data`."""
    secret = None
    if settings.jwt_algorithm == "HS256":
        secret = (settings.jwt_secret or load_or_create_secret(data, system)).encode()
    return JwtAuth(
        settings,
        _key_set(settings) if secret is None else SecretKey(secret),
        tenant_pattern=tenant_pattern,
        clock=clock,
        secret=secret,
    )


def _key_set(settings: JwtSettings) -> Keys:
    if settings.jwks is None:
        raise UsageError(
            "This algorithm needs a key set: set jwks.", algorithm=settings.jwt_algorithm
        )
    if "://" not in settings.jwks and not Path(settings.jwks).is_file():
        _log.warning(
            "jwks file is missing: no token is accepted until it exists", file=settings.jwks
        )
    return KeySet(
        jwks_loader(settings.jwks),
        settings.jwt_algorithm,
        cache_seconds=settings.jwks_cache_seconds,
        refresh_min_seconds=settings.jwks_refresh_min_seconds,
    )
