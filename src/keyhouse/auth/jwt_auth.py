"""Tokens as the way to tell who asks: an Authenticator of settings.

A token that was verified is remembered, by its hash, so that the next request with it costs a look-up. What can change is
looked at every time: the token's times, and whether the keys are still those that verified it. The memory is bounded, and
holds no token.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import structlog

from keyhouse.auth.caller import Caller, HeaderPairs
from keyhouse.auth.credentials import Credentials
from keyhouse.auth.jwks import Keys, KeySet, SecretKey
from keyhouse.auth.jwks_fetch import source
from keyhouse.auth.secret import load_or_create_secret
from keyhouse.auth.settings import JwtSettings
from keyhouse.auth.token import Verified, Verifier
from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import UsageError
from keyhouse.limits import TOKENS_KEPT

_log = structlog.get_logger("keyhouse.auth")

TENANT_PATTERN = r"[A-Za-z0-9_-]{1,64}"

_COOKIE: Final = b"c"
"""Stands behind the hash of a token that a cookie brought. Before the token, whoever sends one could write it."""


class JwtAuth:
    def __init__(
        self,
        settings: JwtSettings,
        keys: Keys,
        *,
        tenant_pattern: str = TENANT_PATTERN,
        clock: Clock | None = None,
        kept_max: int = TOKENS_KEPT,
    ) -> None:
        self._clock = clock or SystemClock()
        self._keys = keys
        self._credentials = Credentials(settings.jwt_cookie)
        self._verifier = Verifier(settings, keys, tenant_pattern=tenant_pattern, clock=self._clock)
        self._cookie = settings.jwt_cookie
        self._kept: dict[bytes, tuple[Verified, Caller]] = {}
        self._kept_max = kept_max
        self._kept_version = keys.version

    @property
    def schemes(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": self._cookie},
        }

    async def ready(self) -> None:
        """For a Part whose callers all have tokens: UnavailableError while none of them could be verified."""
        await self._keys.check()

    def cached_caller(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """The caller of a request in which no header came twice, if its bearer token was verified before and still holds;
        None: `authenticate` says. It says the same of what this takes, and takes longer."""
        bearer = headers.get(b"authorization")
        if bearer is None or bearer[:7] != b"Bearer " or b"cookie" in headers:
            return None
        self._keys.refresh_if_stale()
        kept = self._kept.get(sha256(bearer[7:]).digest())
        if kept is None or self._kept_version != self._keys.version:
            return None
        return kept[1] if kept[0].starts <= self._clock.now() < kept[0].ends else None

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        token, ambient = self._credentials.find(headers)
        keys = self._keys
        keys.refresh_if_stale()
        if self._kept_version != keys.version:
            self._kept.clear()
            self._kept_version = keys.version
        digest = sha256(token).digest() + (_COOKIE if ambient else b"")
        kept = self._kept.get(digest)
        if kept is not None:
            kept[0].check(self._clock.now())
            return kept[1]
        version = keys.version
        verified = await self._verifier.verify(token)
        caller = Caller(tenant=verified.tenant, scopes=verified.scopes, ambient=ambient)
        if (
            version == keys.version
        ):  # else the keys changed meanwhile, and the next request asks again
            while len(self._kept) >= self._kept_max:
                del self._kept[next(iter(self._kept))]
            self._kept[digest] = (verified, caller)
        return caller


def jwt_auth(
    settings: JwtSettings,
    data: Path,
    *,
    system: str = "",
    tenant_pattern: str = TENANT_PATTERN,
    clock: Clock | None = None,
) -> JwtAuth:
    """The authenticator that the settings ask for. HS256 without a secret makes one in `data`, for this system."""
    return JwtAuth(
        settings, _keys(settings, data, system), tenant_pattern=tenant_pattern, clock=clock
    )


def _keys(settings: JwtSettings, data: Path, system: str) -> Keys:
    if settings.jwt_algorithm == "HS256":
        return SecretKey(settings.jwt_secret or load_or_create_secret(data, system))
    if settings.jwt_keys is None:
        raise UsageError(
            "This algorithm needs a key set: set jwt_keys.", algorithm=settings.jwt_algorithm
        )
    if "://" not in settings.jwt_keys and not Path(settings.jwt_keys).is_file():
        _log.warning(
            "the file of the key set is not there: no token is accepted until it is",
            file=settings.jwt_keys,
        )
    return KeySet(
        source(settings.jwt_keys),
        settings.jwt_algorithm,
        seconds=settings.jwt_keys_seconds,
        pause_seconds=settings.jwt_keys_pause_seconds,
    )
