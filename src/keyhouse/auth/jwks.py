"""The keys that tokens are verified with: one secret, or a set (JWKS) that is fetched, kept and fetched again.

A set outlives its source: as long as a fetch fails, the last keys hold. An unknown key's name causes a fetch, at most one in
each pause, so that tokens of strangers can't make us hammer the source; who waits for it waits only so long.
"""

import asyncio
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Literal, Protocol

import jwt
import msgspec
import structlog

from keyhouse.errors import TokenError, UnavailableError, UsageError
from keyhouse.limits import JWKS_SECONDS_MAX

RSA_BITS_MIN = 2_048
CHECK_SECONDS_MAX = 2.0
"""How long a first fetch is waited for by who only asks whether tokens can be verified."""

_log = structlog.get_logger("keyhouse.auth")


class Keys(Protocol):
    version: int
    """Changes whenever a key is no longer what it was."""

    def refresh_if_stale(self) -> None:
        """See to it that what is old is fetched again. Costs nothing when nothing is old."""
        ...

    async def check(self) -> None:
        """UnavailableError while there is no key at all, so that no token can be verified."""
        ...

    async def find(self, name: str | None) -> Any:
        """The key of that name, as PyJWT takes it; TokenError when there is none."""
        ...


class SecretKey:
    """One secret. A token may name its key as it likes: there is no other."""

    version = 0

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def refresh_if_stale(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def find(self, name: str | None) -> bytes:
        return self._secret


class KeySet:
    """The keys of a file or a URL. `load` blocks, and runs in a thread."""

    def __init__(
        self,
        load: Callable[[], bytes],
        algorithm: Literal["RS256", "ES256"],
        *,
        seconds: float,
        pause_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = 0
        self._load = load
        self._algorithm = algorithm
        self._seconds = seconds
        self._pause = pause_seconds
        self._now = monotonic
        self._keys: dict[str | None, Any] = {}
        self._old_at = float("-inf")
        self._next_fetch_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def refresh_if_stale(self) -> None:
        now = self._now()
        if now >= self._old_at and now >= self._next_fetch_at:
            self._fetch()

    async def check(self) -> None:
        if not self._keys and (self._fetching is not None or self._now() >= self._next_fetch_at):
            await asyncio.wait([self._fetch()], timeout=CHECK_SECONDS_MAX)
        if not self._keys:
            raise UnavailableError(
                "The key set can't be read, so that no token is accepted; the log says why."
            )

    async def find(self, name: str | None) -> Any:
        if not self._has(name) and (
            self._fetching is not None or self._now() >= self._next_fetch_at
        ):
            await asyncio.wait([self._fetch()], timeout=JWKS_SECONDS_MAX)
        else:
            self.refresh_if_stale()
        if not self._keys or (
            self._fetching is not None and not self._has(name)
        ):  # what is on its way may have it
            raise UnavailableError("The keys that verify tokens could not be fetched: try again.")
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys:
            raise TokenError("The token was signed with a key that is not known here.")
        return self._keys[name]

    def _has(self, name: str | None) -> bool:
        return name in self._keys or (name is None and len(self._keys) == 1)

    def _fetch(self) -> asyncio.Task[None]:
        """The fetch that is under way, or a new one. All who need it wait for the same."""
        if self._fetching is None:
            self._next_fetch_at = self._now() + self._pause
            self._fetching = asyncio.get_running_loop().create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            keys = await asyncio.to_thread(lambda: read_keys(self._load(), self._algorithm))
        except (OSError, HTTPException, ValueError, UsageError) as error:
            _log.warning("the key set could not be fetched", error=str(error), kept=len(self._keys))
        else:
            if _named(keys) != _named(self._keys):
                self.version += 1
            self._keys = keys
            self._old_at = self._now() + self._seconds
        finally:
            self._fetching = None


def _named(keys: dict[str | None, Any]) -> dict[str | None, Any]:
    return {name: key.public_numbers() for name, key in keys.items()}


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_keys(text: bytes, algorithm: str) -> dict[str | None, Any]:
    """The keys of a set that verify this algorithm, by their names. Others are passed over, and so is a set with none."""
    try:
        entries = msgspec.json.decode(text, type=_Set).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError("The key set is not a JWKS document.", reason=str(error)) from None
    found: dict[str | None, Any] = {}
    for entry in entries:
        name = entry.get("kid")
        if _fits(entry, algorithm) and (name is None or isinstance(name, str)):
            try:
                key = jwt.PyJWK({**entry, "alg": algorithm}, algorithm=algorithm).key
            except (jwt.PyJWTError, ValueError, TypeError) as error:
                _log.warning("a key of the set can't be read", kid=name, error=str(error))
                continue
            if getattr(key, "key_size", 0) < RSA_BITS_MIN and algorithm == "RS256":
                _log.warning("a key of the set is too short", kid=name, least=RSA_BITS_MIN)
                continue
            found[name] = key.public_key() if hasattr(key, "private_numbers") else key
    if not found:
        raise UsageError("The key set has no key for this algorithm.", algorithm=algorithm)
    return found


def _fits(entry: dict[str, Any], algorithm: str) -> bool:
    kind = ("RSA", None) if algorithm == "RS256" else ("EC", "P-256")
    is_kind = (entry.get("kty"), entry.get("crv")) == kind
    return is_kind and entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm
