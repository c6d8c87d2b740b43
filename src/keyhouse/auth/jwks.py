"""Key sets (JWKS) that verify tokens: fetched from a file or URL, cached, and refreshed.

A key set outlives its source: while fetches fail, the last keys stay valid. An unknown key id
causes a fetch, at most one per `jwks_refresh_min_seconds`, so that forged tokens cannot flood the
source; requests that wait for it share one fetch and a timeout.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import msgspec
import structlog

from keyhouse.auth.limits import JWKS_BYTES_MAX, JWKS_TIMEOUT_SECONDS
from keyhouse.errors import TokenError, UnavailableError, UsageError

RSA_BITS_MIN = 2_048

KEY_TYPES: Final[dict[str, tuple[tuple[str, str | None], ...]]] = {
    "RS256": (("RSA", None),),
    "PS256": (("RSA", None),),
    "ES256": (("EC", "P-256"),),
    "ES384": (("EC", "P-384"),),
    "EdDSA": (("OKP", "Ed25519"), ("OKP", "Ed448")),
}
"""The type (`kty`) and curve (`crv`) of the keys that verify each algorithm."""

CHECK_TIMEOUT_SECONDS = 2.0
"""Timeout of a readiness check that waits for the first fetch."""

_log = structlog.get_logger("keyhouse.auth")

Load = Callable[[], Awaitable[bytes]]


class KeySet:
    """The keys that `load` returns, cached for `cache_seconds`."""

    def __init__(
        self,
        load: Load,
        algorithm: str,
        *,
        cache_seconds: float,
        refresh_min_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = 0
        self._load = load
        self._algorithm = algorithm
        self._cache_seconds = cache_seconds
        self._refresh_min_seconds = refresh_min_seconds
        self._now = monotonic
        self._keys: dict[str | None, Any] = {}
        self._was_read = False
        self._stale_at = float("-inf")
        self._next_fetch_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def refresh_if_stale(self) -> None:
        now = self._now()
        if now >= self._stale_at and now >= self._next_fetch_at:
            self._fetch()

    async def check(self) -> None:
        if not self._keys and (self._fetching is not None or self._now() >= self._next_fetch_at):
            await asyncio.wait([self._fetch()], timeout=CHECK_TIMEOUT_SECONDS)
        if not self._was_read:
            raise UnavailableError(
                "The key set cannot be read, so no token is accepted; see the log."
            )
        if not self._keys:
            raise UnavailableError("The key set is empty, so no token is accepted.")

    async def find(self, key_id: str | None) -> Any:
        if not self._has(key_id) and (
            self._fetching is not None or self._now() >= self._next_fetch_at
        ):
            await asyncio.wait([self._fetch()], timeout=JWKS_TIMEOUT_SECONDS)
        else:
            self.refresh_if_stale()
        is_pending = self._fetching is not None and not self._has(key_id)
        if not self._was_read or is_pending:
            raise UnavailableError("The keys that verify tokens could not be fetched: try again.")
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if key_id not in self._keys:
            raise TokenError("The token is signed with an unknown key.")
        return self._keys[key_id]

    def _has(self, key_id: str | None) -> bool:
        return key_id in self._keys or (key_id is None and len(self._keys) == 1)

    def _fetch(self) -> asyncio.Task[None]:
        """Return the fetch in flight, or start one (single-flight)."""
        if self._fetching is None:
            self._next_fetch_at = self._now() + self._refresh_min_seconds
            self._fetching = asyncio.get_running_loop().create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            text = await self._load()
            keys = await asyncio.to_thread(read_keys, text, self._algorithm)
        except (OSError, ValueError, UsageError) as error:  # TimeoutError is an OSError
            reason = str(error) or type(error).__name__
            _log.warning("jwks fetch failed", error=reason, cached=len(self._keys))
        else:
            if keys != self._keys:
                self.version += 1
            self._keys = keys
            self._was_read = True
            self._stale_at = self._now() + self._cache_seconds
        finally:
            self._fetching = None


class _Jwks(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_keys(text: bytes, algorithm: str) -> dict[str | None, Any]:
    """Return the keys of a set that verify this algorithm, by key id. Others are skipped.

    Raises UsageError if it has keys, but none of them for this algorithm. An empty set revokes all.
    """
    try:
        entries = msgspec.json.decode(text, type=_Jwks).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError("The key set is not a JWKS document.", reason=str(error)) from None
    keys: dict[str | None, Any] = {}
    for entry in entries:
        key_id = entry.get("kid")
        if _is_usable(entry, algorithm) and (key_id is None or isinstance(key_id, str)):
            try:
                key = jwt.PyJWK({**entry, "alg": algorithm}, algorithm=algorithm).key
            except (jwt.PyJWTError, ValueError, TypeError) as error:
                _log.warning("jwks key is invalid", kid=key_id, error=str(error))
                continue
            if entry["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:
                _log.warning("jwks key is too short", kid=key_id, least=RSA_BITS_MIN)
                continue
            keys[key_id] = key.public_key() if hasattr(key, "public_key") else key
    if entries and not keys:
        raise UsageError("The key set has no key for this algorithm.", algorithm=algorithm)
    return keys


def _is_usable(entry: dict[str, Any], algorithm: str) -> bool:
    is_kind = (entry.get("kty"), entry.get("crv")) in KEY_TYPES[algorithm]
    return is_kind and entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm


# Sources


def check_location(location: str) -> None:
    """Raise UsageError unless the location is a file, or a URL that nobody on the way can forge."""
    parts = urlsplit(location)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(
            "A key set must be fetched with https: over http it could be replaced.", url=location
        )
    if parts.scheme not in ("http", "https") and "://" in location:
        raise UsageError("A key set is a file, or a URL with https://.", place=location)


def jwks_loader(location: str) -> Load:
    """Return a function that reads a key set. Raises UsageError as `check_location` does."""
    check_location(location)
    if urlsplit(location).scheme in ("http", "https"):
        return lambda: _fetch_url(location)
    return lambda: asyncio.to_thread(_read_file, Path(location))


async def _fetch_url(url: str) -> bytes:
    """Fetch within JWKS_TIMEOUT_SECONDS and JWKS_BYTES_MAX.

    Redirects are errors: one could lead to http, or to an internal host. The body is read without
    decompression, which could exceed the limit.
    """
    import httpx

    context = await asyncio.to_thread(ssl.create_default_context)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    body = b""
    try:
        async with (
            asyncio.timeout(JWKS_TIMEOUT_SECONDS),
            httpx.AsyncClient(verify=context, timeout=None) as client,
            client.stream("GET", url, headers=headers, follow_redirects=False) as response,
        ):
            response.raise_for_status()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > JWKS_BYTES_MAX:
                    raise OSError("it is too large")
    except TimeoutError:
        raise TimeoutError("it took too long") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(str(error) or type(error).__name__) from error
    return body


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(JWKS_BYTES_MAX + 1)
    if len(text) > JWKS_BYTES_MAX:
        raise OSError("it is too large")
    return text
