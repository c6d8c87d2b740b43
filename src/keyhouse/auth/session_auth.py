"""Sessions and API keys with hashed secrets: an authenticator over a system's own records.

A token is random and its secret is stored only as a SHA-256 hash, so a reader of the store cannot
use it. There are two forms:

    form         token                              stored by the system
    ----------   --------------------------------   ------------------------------------------------
    ID_SECRET    <id>.<32 random bytes, base64url>  a record with this id and the hash of the secret
    HASHED_KEY   32 random bytes, base64url         a record whose id is the hash of the token

A record is read on every request, so a deleted or changed session, and changed roles, take effect
at once.
"""

import base64
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import DeclarationError, TokenError

__all__ = [
    "HASHED_KEY",
    "ID_SECRET",
    "AnyAuth",
    "NewToken",
    "SessionAuth",
    "StoredSession",
    "TokenForm",
    "new_token",
    "secret_hash",
]

TokenForm = Literal["id_secret", "hashed_key"]
ID_SECRET: Final[TokenForm] = "id_secret"
HASHED_KEY: Final[TokenForm] = "hashed_key"

_SECRET_BYTES: Final = 32
_FORMS: Final = {
    ID_SECRET: re.compile(rb"([A-Za-z0-9_-]{1,128})\.([A-Za-z0-9_-]{43})"),
    HASHED_KEY: re.compile(rb"[A-Za-z0-9_-]{43}"),
}
_RENEWALS_PER_LIFETIME: Final = 24


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session or an API key, as a system has stored it.

    `caller` is who it belongs to, with its current roles. `expires` is in milliseconds since 1970;
    None: never. `allows_cookie` is false for an API key: a browser must not send it by itself.
    """

    caller: Caller
    secret_hash: str = ""
    expires: int | None = None
    allows_cookie: bool = True


class NewToken(msgspec.Struct, frozen=True):
    """A new token. The client gets `token`; the system stores `id` and `secret_hash`."""

    token: str
    id: str
    secret_hash: str


def new_token(id: str | None = None) -> NewToken:
    """Return a token for the record `id`; without one, a token whose hash is the id."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=")
    hashed = secret_hash(secret)
    if id is None:
        return NewToken(secret.decode(), hashed, hashed)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", id):
        raise DeclarationError("The id of a session has letters, digits, _ and - only.", id=id)
    return NewToken(f"{id}.{secret.decode()}", id, hashed)


def secret_hash(secret: bytes) -> str:
    """Return the SHA-256 of a secret as it was sent, in base64url without padding."""
    return base64.urlsafe_b64encode(sha256(secret).digest()).rstrip(b"=").decode()


class SessionAuth(Authenticator):
    """Identifies callers by the sessions or API keys of a system.

    `get` returns the stored session of an id. A token may come in the cookie `cookie`, in the
    header `header`, or as a bearer token if `bearer`. A browser sends a cookie until it is
    replaced, so a rejected one is like none: a page, whose caller is optional, can lead to the
    login; routes whose scope `anonymous` has get that caller. `sliding_seconds` extends a session
    in use, with `renew(id, expires)`, which writes at most 24 times per lifetime. `role_scopes` are
    the scopes that each role gives; the caller's own are kept.
    """

    def __init__(
        self,
        get: Callable[[str], Awaitable[StoredSession | None]],
        *,
        cookie: str | None = None,
        header: str | None = None,
        bearer: bool = False,
        form: TokenForm = ID_SECRET,
        sliding_seconds: float | None = None,
        renew: Callable[[str, int], Awaitable[None]] | None = None,
        role_scopes: Mapping[str, Collection[str]] | None = None,
        anonymous: Caller | None = None,
        clock: Clock | None = None,
    ) -> None:
        if cookie is None and header is None and not bearer:
            raise DeclarationError("A session needs a cookie, a header or a bearer token.")
        if (sliding_seconds is None) != (renew is None):
            raise DeclarationError("Sliding sessions need both sliding_seconds and renew.")
        self._get = get
        self._cookie = None if cookie is None else cookie.encode() + b"="
        self._header = None if header is None else header.lower().encode()
        self._has_bearer = bearer
        self._pattern = _FORMS[form]
        self._has_id = form == ID_SECRET
        self._sliding_seconds = sliding_seconds
        self._renew = renew
        self._role_scopes = role_scopes or {}
        self.anonymous = anonymous
        self._clock = clock or SystemClock()
        self.schemes = _schemes(cookie, header, bearer)

    schemes: Mapping[str, Mapping[str, Any]] = {}
    anonymous: Caller | None = None

    async def authenticate(self, headers: HeaderPairs, *, renew: bool = True) -> Caller:
        token, from_cookie = self._find(headers)
        try:
            session, id = await self._session(token)
            if from_cookie and not session.allows_cookie:
                raise TokenError("An API key is not accepted as a cookie: send it in a header.")
            if session.expires is not None:
                now = self._clock.now()
                if now >= session.expires:
                    raise TokenError("The session has expired: sign in again.")
                if renew and self._renew is not None:
                    await self._extend(id, session.expires, now)
        except TokenError as error:
            raise TokenError(error.sentence, missing=from_cookie) from None
        caller = session.caller
        if self._role_scopes:
            given = [self._role_scopes.get(role, ()) for role in caller.roles]
            caller = msgspec.structs.replace(caller, scopes=caller.scopes.union(*given))
        if caller.from_cookie is from_cookie:
            return caller
        return msgspec.structs.replace(caller, from_cookie=from_cookie)

    async def recheck(self, headers: HeaderPairs) -> Caller:
        return await self.authenticate(headers, renew=False)

    async def _session(self, token: bytes) -> tuple[StoredSession, str]:
        """Return the session of a token, and its id. Raises TokenError if there is none."""
        match = self._pattern.fullmatch(token)
        if match is None:
            raise TokenError("The session token is malformed.")
        id = match[1].decode() if self._has_id else secret_hash(token)
        session = await self._get(id)
        hashed = secret_hash(match[2]) if self._has_id else id
        stored = "" if session is None else session.secret_hash if self._has_id else id
        if not hmac.compare_digest(hashed, stored) or session is None:
            raise TokenError("The session is unknown or was revoked: sign in again.")
        return session, id

    async def _extend(self, id: str, expires: int, now: int) -> None:
        """Renew a session, unless it was renewed a short time ago."""
        assert self._renew is not None and self._sliding_seconds is not None
        lifetime = round(self._sliding_seconds * 1_000)
        if expires - now < lifetime - lifetime // _RENEWALS_PER_LIFETIME:
            await self._renew(id, now + lifetime)

    def _find(self, headers: HeaderPairs) -> tuple[bytes, bool]:
        """Return the token, and whether it is from the cookie."""
        cookies: list[bytes] = []
        others: list[bytes] = []
        for name, value in headers:
            if name == b"cookie" and self._cookie is not None:
                cookies += _cookie_values(value, self._cookie)
            elif name == self._header:
                others.append(value.strip())
            elif name == b"authorization" and self._has_bearer:
                others += self._bearer(value)
        tokens = others or cookies
        if not tokens:
            raise TokenError("There is no session: sign in.", missing=True)
        if len(others) > 1 or len(cookies) > 1:
            raise TokenError("There is more than one token: send one.")
        return tokens[0], not others

    def _bearer(self, header: bytes) -> list[bytes]:
        """Return a token of this form; another one is for another authenticator."""
        scheme, _, token = header.partition(b" ")
        token = token.strip()
        is_own = scheme.lower() == b"bearer" and self._pattern.fullmatch(token)
        return [token] if is_own else []


class AnyAuth(Authenticator):
    """Tries several authenticators in order: the first for which there are credentials decides."""

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators: Sequence[Authenticator] = authenticators
        self.schemes = {
            name: scheme for each in authenticators for name, scheme in each.schemes.items()
        }

    schemes: Mapping[str, Mapping[str, Any]] = {}

    @property
    def anonymous(self) -> Caller | None:
        return self._authenticators[-1].anonymous

    def cached_caller(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        return self._authenticators[0].cached_caller(headers)

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        return await self._first(lambda each: each.authenticate(headers))

    async def recheck(self, headers: HeaderPairs) -> Caller:
        return await self._first(lambda each: each.recheck(headers))

    async def _first(self, identify: Callable[[Authenticator], Awaitable[Caller]]) -> Caller:
        for authenticator in self._authenticators[:-1]:
            try:
                return await identify(authenticator)
            except TokenError as error:
                if not error.missing:
                    raise
        return await identify(self._authenticators[-1])


def _cookie_values(header: bytes, start: bytes) -> list[bytes]:
    parts = (each.strip() for each in header.split(b";"))
    return [part.removeprefix(start) for part in parts if part.startswith(start)]


def _schemes(
    cookie: str | None, header: str | None, bearer: bool
) -> Mapping[str, Mapping[str, Any]]:
    schemes: dict[str, Mapping[str, Any]] = {}
    if cookie is not None:
        schemes["session"] = {"type": "apiKey", "in": "cookie", "name": cookie}
    if header is not None:
        schemes["apiKey"] = {"type": "apiKey", "in": "header", "name": header}
    if bearer:
        schemes["sessionToken"] = {"type": "http", "scheme": "bearer"}
    return schemes
