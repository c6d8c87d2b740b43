"""Signing in with a one-time code, which the channel's robot sends as a private message.

A code has 41 bits, so guesses are what must be bounded, and what is stored must not help to guess:

- Stored is an HMAC of the code with a key that is not in the bucket, so a reader of the bucket
  cannot try codes.
- A code belongs to the client that requested it, by a cookie, and has three guesses there,
  whatever others send: `otp/own/{username}/{requester}`.
- A client without that cookie guesses at the newest code of the name, `otp/request/{username}`.
  All failures of a name count in `otp/lock/{username}`, and three lock it for an hour for those
  clients. So nobody can keep out the person who has requested a code.
- A guess is counted before its code is compared, by compare-and-set: of any number of parallel
  guesses, in any number of processes, at most three are compared. A success deletes the lock.
- Codes are bounded, so guesses are: 60 codes of a name in 15 minutes, with three guesses each, and
  three of others are 723 guesses an hour at most. A code is one of 36^8 = 2.8e12, so guessing at
  full speed succeeds once in about 445,000 years.
- Those 60 are of unknown clients, which can use them up. A client from which this user has signed
  in before (`known_clients`) has five, whatever others request for the name or from its address.
  A block of its address that another client asked for does not hold for its device; one by an
  admin does.
- A new request never resets the lock, and a name is locked whether or not anybody has it.
"""

import asyncio
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from hashlib import sha256
from string import ascii_uppercase, digits
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec

from keyhouse.auth import new_token, secret_hash
from keyhouse.errors import DataError, RateError
from keyhouse.http import ClientAddress, set_cookie
from keyhouse.schema import SECONDS
from keyhouse.service.accounts.known_clients import KnownClients
from keyhouse.service.secret_ids import secret_id
from keyhouse.store import Transaction
from keyhouse_playlist.accounts.address_blocks import AddressBlocks
from keyhouse_playlist.accounts.roles import Roles
from keyhouse_playlist.accounts.sessions import COOKIE, MemberSessions
from keyhouse_playlist.errors import OtpKeyError
from keyhouse_playlist.limits import (
    LOCK_SECONDS,
    OTP_FAILURES_MAX,
    OTP_PER_ADDRESS_MAX,
    OTP_PER_KNOWN_CLIENT_MAX,
    OTP_PER_NAME_AND_ADDRESS_MAX,
    OTP_PER_NAME_MAX,
    OTP_RATE_SECONDS,
    OTP_SECONDS,
)
from keyhouse_playlist.names import comparable_name
from keyhouse_playlist.schema import (
    OTP_LOCK,
    OTP_OWN,
    OTP_RATE,
    OTP_REQUEST,
    OtpLock,
    OtpRate,
    OtpRequest,
    Role,
)
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["DEVICE_COOKIE", "REQUEST_COOKIE", "OneTimeCodes", "SignIn"]

REQUEST_COOKIE: Final = "kryten_playlist_code"
"""The cookie of the client that requested a code. It lasts as long as the code."""

DEVICE_COOKIE: Final = "kryten_playlist_device"
"""The cookie of a client from which a user has signed in."""

_REQUEST_COOKIE = re.compile(rf"(?:^|;)\s*{REQUEST_COOKIE}=([A-Za-z0-9_-]{{43}})\s*(?:;|$)")

CODE_CHARACTERS: Final = ascii_uppercase + digits
CODE_LENGTH: Final = 8

Deliver = Callable[[str, str], Awaitable[None]]
"""Sends a code to a user."""


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a code that was sent. `cookies` are the headers of the new session, and of the
    device, which make the client signed in and known."""

    status: Literal["ok", "invalid", "locked", "unrequested"]
    role: Role | None = None
    cookies: tuple[tuple[str, str], ...] = ()
    attempts_remaining: int = 0
    retry_after_seconds: int = 0


class _Guess(msgspec.Struct, frozen=True):
    """A guess that was counted and may be compared; `left` are the ones after it. `requester` is
    the one whose own code it is, if any."""

    request: OtpRequest
    left: int
    requester: str


class OneTimeCodes:
    """`key` hashes the codes; processes that serve the same bucket share it."""

    def __init__(
        self,
        stores: PlaylistStores,
        roles: Roles,
        blocks: AddressBlocks,
        sessions: MemberSessions,
        *,
        key: bytes,
        deliver: Deliver,
    ) -> None:
        self._stores = stores
        self._store = stores.auth
        self._roles = roles
        self._blocks = blocks
        self._sessions = sessions
        self._key = key
        self._key_id = secret_id(key)
        self._known = KnownClients(cookie=DEVICE_COOKIE, key=key, clock=stores.clock)
        self._deliver = deliver
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def request(
        self, username: str, client: ClientAddress, user_agent: str | None, cookies: str = ""
    ) -> tuple[str, str]:
        """Make a code and send it; return the header of the cookie that gives the client its own
        guesses. Raises RateError or AddressBlockedError."""
        name, network = comparable_name(username), client.network or "-"
        known = self._known.device(name, cookies)
        await self._blocks.reject_blocked(client, is_known=bool(known))
        code = "".join(secrets.choice(CODE_CHARACTERS) for _ in range(CODE_LENGTH))
        cookie = _request_cookie(cookies) or new_token().token
        requester = secret_hash(cookie.encode())
        if not known and self._known.has_address(name, client):
            known = network

        async def work(tx: Transaction) -> None:
            if known:
                pair = f"{name} {known}"
                await self._count_request(tx, "known", pair, OTP_PER_KNOWN_CLIENT_MAX)
            else:
                pair = f"{name} {network}"
                await self._count_request(tx, "name-address", pair, OTP_PER_NAME_AND_ADDRESS_MAX)
                await self._count_request(tx, "name", name, OTP_PER_NAME_MAX)
                await self._count_request(tx, "address", network, OTP_PER_ADDRESS_MAX)
            lock = await tx.get(OTP_LOCK, username=username)
            salt = f"{self._key_id}-{secrets.token_hex(16)}"
            request = OtpRequest(
                requested_at=self._stores.now_text(),
                expires_at=self._stores.now_text(OTP_SECONDS),
                request_ip=client.address,
                request_user_agent=msgspec.UNSET if user_agent is None else user_agent[:200],
                otp_hash=self._hash(username, code, salt),
                otp_salt=salt,
                attempts_remaining=OTP_FAILURES_MAX,
                requester=requester,
            )
            await tx.put(OTP_OWN, request, username=username, requester=requester)
            left = OTP_FAILURES_MAX - self._failures(lock)
            if not self._seconds_locked(lock):
                shared = msgspec.structs.replace(request, attempts_remaining=left)
                await tx.put(OTP_REQUEST, shared, username=username)

        await self._store.transact(work)
        await self._deliver(username.strip(), code)
        return set_cookie(REQUEST_COOKIE, cookie, client, max_age_seconds=OTP_SECONDS)

    async def verify(
        self, username: str, code: str, client: ClientAddress, cookies: str = ""
    ) -> SignIn:
        """Compare a code, and start a session if it is right."""
        name, cookie = comparable_name(username), _request_cookie(cookies)
        is_known = bool(self._known.device(name, cookies))
        await self._blocks.reject_blocked(client, is_known=is_known)
        requester = secret_hash(cookie.encode()) if cookie else ""
        async with self._names.setdefault(f"{name} {requester}", asyncio.Lock()):
            guess = await self._counted(username, requester)
            if isinstance(guess, SignIn):
                if guess.status == "unrequested":
                    await self._blocks.intend(client)
                return guess
            salt = guess.request.otp_salt
            hashed = self._hash(username, code, salt if isinstance(salt, str) else "")
            if hmac.compare_digest(hashed.encode(), guess.request.otp_hash.encode()):
                signed_in = await self._start_session(username, guess, client)
                return signed_in or SignIn(status="unrequested")  # it was used meanwhile
            return await self._failed(username, guess)

    # Guesses

    async def _counted(self, username: str, requester: str) -> _Guess | SignIn:
        """Count a guess, before it is compared."""
        if not requester and (seconds := await self._locked_seconds(username)):
            return SignIn(status="locked", retry_after_seconds=seconds)

        async def work(tx: Transaction) -> _Guess | SignIn:
            own = await self._own(tx, username, requester)
            request = own or await self._newest(tx, username)
            # Last: a name is locked before its code is deleted, so no lock means no request.
            lock = await tx.get(OTP_LOCK, username=username)
            seconds = self._seconds_locked(lock)
            if own is None and seconds:
                return SignIn(status="locked", retry_after_seconds=seconds)
            if request is None:
                return SignIn(status="unrequested")
            self._check_key(request)
            failures = self._failures(lock) + 1
            if not seconds:
                is_last = failures >= OTP_FAILURES_MAX
                counted = OtpLock(
                    failures=failures,
                    since=lock.since if lock and failures > 1 else self._stores.now_text(),
                    locked_until=self._stores.now_text(LOCK_SECONDS) if is_last else None,
                )
                await tx.put(OTP_LOCK, counted, username=username)
            if own is not None:
                left = own.attempts_remaining - 1
                after = msgspec.structs.replace(own, attempts_remaining=left)
                await tx.put(OTP_OWN, after, username=username, requester=requester)
                return _Guess(request, left, requester)
            left = OTP_FAILURES_MAX - failures
            after = msgspec.structs.replace(request, attempts_remaining=left)
            await tx.put(OTP_REQUEST, after, username=username)
            return _Guess(request, left, "")

        return await self._store.transact(work)

    async def _own(self, tx: Transaction, username: str, requester: str) -> OtpRequest | None:
        """Return the code that this client requested, if it has guesses left."""
        if not requester:
            return None
        own = await tx.get(OTP_OWN, username=username, requester=requester)
        return own if own is not None and own.attempts_remaining > 0 else None

    async def _newest(self, tx: Transaction, username: str) -> OtpRequest | None:
        """Return the newest code of a name."""
        try:
            return await tx.get(OTP_REQUEST, username=username)
        except DataError:  # another program's
            return None

    def _check_key(self, request: OtpRequest) -> None:
        """Raise OtpKeyError if another key made the code: no guess at it could be right."""
        salt = request.otp_salt if isinstance(request.otp_salt, str) else ""
        key_id, _, rest = salt.partition("-")
        if rest and key_id != self._key_id:
            raise OtpKeyError("The processes of this service must have the same otp_key.")

    async def _failed(self, username: str, guess: _Guess) -> SignIn:
        if guess.left > 0:
            return SignIn(status="invalid", attempts_remaining=guess.left)
        if not guess.requester:
            await self._store.delete(OTP_REQUEST, username=username)
        seconds = await self._locked_seconds(username)
        return SignIn(status="locked", retry_after_seconds=max(1, seconds))

    async def _start_session(
        self, username: str, guess: _Guess, client: ClientAddress
    ) -> SignIn | None:
        """Use the code up and start a session; None if another sign-in was first."""
        role = await self._roles.of(username)
        new = self._sessions.new()
        hashed, requester = guess.request.otp_hash, guess.request.requester

        async def work(tx: Transaction) -> bool:
            """Delete both rows of the code, so that it signs in once."""
            was_there = False
            if isinstance(requester, str):
                own = await tx.get(OTP_OWN, username=username, requester=requester)
                if own is not None and own.otp_hash == hashed:
                    await tx.delete(OTP_OWN, username=username, requester=requester)
                    was_there = True
            shared = await self._newest(tx, username)
            if shared is not None and shared.otp_hash == hashed:
                await tx.delete(OTP_REQUEST, username=username)
                was_there = was_there or not isinstance(requester, str)
            if was_there:
                await tx.delete(OTP_LOCK, username=username)
                await self._sessions.put(tx, new, username, role, client)
            return was_there

        if not await self._store.transact(work):
            return None
        name = comparable_name(username)
        self._known.signed_in(name, client)
        cookies = (COOKIE.set(new, client), self._known.device_cookie(name, client))
        return SignIn(status="ok", role=role, cookies=cookies)

    # Locks and rates

    async def _locked_seconds(self, username: str) -> int:
        lock = await self._store.get(OTP_LOCK, username=username)
        return self._seconds_locked(lock)

    def _seconds_locked(self, lock: OtpLock | None) -> int:
        if lock is None or lock.locked_until is None:
            return 0
        return max(0, self._stores.seconds_until(lock.locked_until))

    def _failures(self, lock: OtpLock | None) -> int:
        """Return the failures that still count: not those of a lock that has ended."""
        if lock is None or lock.locked_until is not None:
            return 0
        is_old = self._stores.seconds_until(lock.since) < -LOCK_SECONDS
        return 0 if is_old else lock.failures

    async def _count_request(self, tx: Transaction, kind: str, of: str, most: int) -> None:
        start = self._stores.now() - OTP_RATE_SECONDS * 1_000
        stored = await tx.get(OTP_RATE, kind=kind, of=of)
        times = [each for each in stored.times if SECONDS.parse(each) > start] if stored else []
        if len(times) >= most:
            wait = self._stores.seconds_until(times[-most]) + OTP_RATE_SECONDS
            raise RateError("Too many codes were requested: wait.", retry_after=max(1, wait))
        rate = OtpRate(
            times=[*times, self._stores.now_text()],
            expires_at=self._stores.now_text(OTP_RATE_SECONDS),
        )
        await tx.put(OTP_RATE, rate, kind=kind, of=of)

    def _hash(self, username: str, code: str, salt: str) -> str:
        text = f"{salt}:{comparable_name(username)}:{code.strip().upper()}"
        return hmac.new(self._key, text.encode("utf-8", "replace"), sha256).hexdigest()


def _request_cookie(cookies: str) -> str:
    """Return the cookie of a client that has requested a code, from the header `Cookie`; "" if it
    has none."""
    found = _REQUEST_COOKIE.search(cookies)
    return "" if found is None else found[1]
