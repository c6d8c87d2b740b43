"""Signing in with a one-time code, which the channel's robot sends as a private message.

A code has 41 bits, so guesses are what must be bounded, and what is stored must not help to guess:

- Stored is an HMAC of the code with a key that is not in the bucket, so a reader of the bucket
  cannot try codes.
- Failures count in `otp/lock/{username}`, over all codes of a name. A guess is counted before its
  code is compared, by compare-and-set: of any number of parallel guesses, in any number of
  processes, at most three are compared. A correct guess is subtracted again.
- A new request never resets the count, and a name is locked whether or not anybody has it.
"""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from hashlib import sha256
from string import ascii_uppercase, digits
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec

from keyhouse.auth import new_token
from keyhouse.errors import DataError, RateError
from keyhouse.http import ClientAddress
from keyhouse.schema import SECONDS
from keyhouse.store import Transaction
from keyhouse.systems.playlist.address_blocks import AddressBlocks
from keyhouse.systems.playlist.errors import NameLockedError, OtpKeyError
from keyhouse.systems.playlist.limits import (
    LOCK_SECONDS,
    OTP_FAILURES_MAX,
    OTP_PER_ADDRESS_MAX,
    OTP_PER_NAME_MAX,
    OTP_RATE_SECONDS,
    OTP_SECONDS,
    SESSION_SECONDS,
)
from keyhouse.systems.playlist.names import comparable_name
from keyhouse.systems.playlist.roles import Roles
from keyhouse.systems.playlist.schema import (
    OTP_LOCK,
    OTP_RATE,
    OTP_REQUEST,
    SESSION,
    OtpLock,
    OtpRate,
    OtpRequest,
    Role,
    Session,
)
from keyhouse.systems.playlist.stores import PlaylistStores

__all__ = ["OneTimeCodes", "SignIn"]

CODE_CHARACTERS: Final = ascii_uppercase + digits
CODE_LENGTH: Final = 8

Deliver = Callable[[str, str], Awaitable[None]]
"""Sends a code to a user."""


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a code that was sent. `token` is the cookie of the new session."""

    status: Literal["ok", "invalid", "locked", "unrequested"]
    role: Role | None = None
    token: str = ""
    attempts_remaining: int = 0
    retry_after_seconds: int = 0


class _Guess(msgspec.Struct, frozen=True):
    """A guess that was counted and may be compared."""

    request: OtpRequest
    failures: int


class OneTimeCodes:
    """`key` hashes the codes; processes that serve the same bucket share it."""

    def __init__(
        self,
        stores: PlaylistStores,
        roles: Roles,
        blocks: AddressBlocks,
        *,
        key: bytes,
        deliver: Deliver,
    ) -> None:
        self._stores = stores
        self._store = stores.auth
        self._roles = roles
        self._blocks = blocks
        self._key = key
        self._key_id = hmac.new(key, b"id of this key", sha256).hexdigest()[:8]
        self._deliver = deliver
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def request(self, username: str, client: ClientAddress, user_agent: str | None) -> None:
        """Make a code and send it. Raises RateError, NameLockedError or AddressBlockedError."""
        await self._blocks.reject_blocked(client)
        if seconds := await self._locked_seconds(username):
            raise NameLockedError(
                "Too many wrong codes were sent for this name: wait.", retry_after=seconds
            )
        code = "".join(secrets.choice(CODE_CHARACTERS) for _ in range(CODE_LENGTH))

        async def work(tx: Transaction) -> None:
            await self._count_request(tx, "name", comparable_name(username), OTP_PER_NAME_MAX)
            await self._count_request(tx, "address", client.network or "-", OTP_PER_ADDRESS_MAX)
            lock = await tx.get(OTP_LOCK, username=username)
            salt = f"{self._key_id}-{secrets.token_hex(16)}"
            request = OtpRequest(
                requested_at=self._stores.now_text(),
                expires_at=self._stores.now_text(OTP_SECONDS),
                request_ip=client.address,
                request_user_agent=msgspec.UNSET if user_agent is None else user_agent[:200],
                otp_hash=self._hash(username, code, salt),
                otp_salt=salt,
                attempts_remaining=OTP_FAILURES_MAX - self._failures(lock),
            )
            await tx.put(OTP_REQUEST, request, username=username)

        await self._store.transact(work)
        await self._deliver(username.strip(), code)

    async def verify(self, username: str, code: str, client: ClientAddress) -> SignIn:
        """Compare a code, and start a session if it is right."""
        await self._blocks.reject_blocked(client)
        name = comparable_name(username)
        async with self._names.setdefault(name, asyncio.Lock()):
            guess = await self._counted(username)
            if isinstance(guess, SignIn):
                if guess.status == "unrequested":
                    await self._blocks.intend(client)
                return guess
            salt = guess.request.otp_salt
            hashed = self._hash(username, code, salt if isinstance(salt, str) else "")
            if hmac.compare_digest(hashed.encode(), guess.request.otp_hash.encode()):
                signed_in = await self._start_session(username, guess.request, client)
                return signed_in or SignIn(status="unrequested")  # it was used meanwhile
            return await self._failed(username, guess)

    # Guesses

    async def _counted(self, username: str) -> _Guess | SignIn:
        """Count a guess, before it is compared."""
        if seconds := await self._locked_seconds(username):
            return SignIn(status="locked", retry_after_seconds=seconds)

        async def work(tx: Transaction) -> _Guess | SignIn:
            lock = await tx.get(OTP_LOCK, username=username)
            if seconds := self._seconds_locked(lock):
                return SignIn(status="locked", retry_after_seconds=seconds)
            try:
                request = await tx.get(OTP_REQUEST, username=username)
            except DataError:  # another program's
                request = None
            if request is None:
                return SignIn(status="unrequested")
            self._check_key(request)
            failures = self._failures(lock) + 1
            is_last = failures >= OTP_FAILURES_MAX
            counted = OtpLock(
                failures=failures,
                since=lock.since if lock and failures > 1 else self._stores.now_text(),
                locked_until=self._stores.now_text(LOCK_SECONDS) if is_last else None,
            )
            await tx.put(OTP_LOCK, counted, username=username)
            left = msgspec.structs.replace(request, attempts_remaining=OTP_FAILURES_MAX - failures)
            await tx.put(OTP_REQUEST, left, username=username)
            return _Guess(request, failures)

        return await self._store.transact(work)

    def _check_key(self, request: OtpRequest) -> None:
        """Raise OtpKeyError if another key made the code: no guess at it could be right."""
        salt = request.otp_salt if isinstance(request.otp_salt, str) else ""
        key_id, _, rest = salt.partition("-")
        if rest and key_id != self._key_id:
            raise OtpKeyError("The processes of this service must have the same otp_key.")

    async def _failed(self, username: str, guess: _Guess) -> SignIn:
        if guess.failures < OTP_FAILURES_MAX:
            return SignIn(status="invalid", attempts_remaining=OTP_FAILURES_MAX - guess.failures)
        await self._store.delete(OTP_REQUEST, username=username)
        return SignIn(status="locked", retry_after_seconds=LOCK_SECONDS)

    async def _start_session(
        self, username: str, request: OtpRequest, client: ClientAddress
    ) -> SignIn | None:
        """Use the code up and start a session; None if another sign-in was first."""
        role = await self._roles.of(username)
        token = new_token()
        session = Session(
            username=username.strip(),
            role=role,
            created_at=self._stores.now_text(),
            expires_at=self._stores.now_text(SESSION_SECONDS),
            ip=client.address,
        )

        async def work(tx: Transaction) -> bool:
            stored = await tx.get(OTP_REQUEST, username=username)
            if stored is None or stored.otp_hash != request.otp_hash:
                return False
            await tx.delete(OTP_REQUEST, username=username)
            await tx.delete(OTP_LOCK, username=username)
            await tx.put(SESSION, session, session_id=token.id)
            return True

        if not await self._store.transact(work):
            return None
        return SignIn(status="ok", role=role, token=token.token)

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
