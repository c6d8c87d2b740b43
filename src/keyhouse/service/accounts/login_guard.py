"""Slows down guesses of passwords and codes, by account and by the client's address.

An attempt counts when it starts, so parallel guesses are counted too, and a success takes it back.
Beyond a number of free attempts, the next ones of an address are rejected for a time that doubles.
Attempts of an account are never rejected, because anybody can make them: the service waits before
it verifies their password, for at most a few seconds. Attempts of a device from which the user has
signed in before count by device, not by address (`known_clients`). So nobody locks out somebody
else; from the same address, that holds for clients that keep the device cookie.

Failures are counted in this process, or, if several processes serve the same users, in rows that
they share (`store.service_rows`), which name nobody.
"""

import asyncio
import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from keyhouse.clock import Clock, SystemClock, monotonic
from keyhouse.engine import Engine
from keyhouse.errors import RateError
from keyhouse.http import ClientAddress
from keyhouse.service.accounts.known_clients import KnownClients
from keyhouse.service.limits import LOGIN_ENTRIES_MAX
from keyhouse.store import update_service_row

__all__ = ["LoginGuard"]

ACCOUNT_DELAY_SECONDS_MAX: Final = 2.0
ADDRESS_DELAY_SECONDS_MAX: Final = 900.0
FORGET_SECONDS: Final = 3_600.0
"""Failures are forgotten after this time without an attempt."""

_DOUBLINGS_MAX: Final = 32


R = TypeVar("R")


class _Failures(msgspec.Struct):
    count: int = 0
    last: int = 0
    blocked_until: int = 0


class LoginGuard:
    """`check` before the password is verified, `succeeded` after it was right.

    `account_attempts` and `address_attempts` are free; then the delays start at
    `account_delay_seconds` and `address_delay_seconds`. `shared` is the engine of users whom other
    processes serve too.
    """

    def __init__(
        self,
        *,
        account_attempts: int = 5,
        address_attempts: int = 20,
        account_delay_seconds: float = 0.1,
        account_delay_seconds_max: float = ACCOUNT_DELAY_SECONDS_MAX,
        address_delay_seconds: float = 1.0,
        entries_max: int = LOGIN_ENTRIES_MAX,
        clock: Clock | None = None,
        known: KnownClients | None = None,
        shared: Engine | None = None,
    ) -> None:
        self.known = known or KnownClients(entries_max=entries_max)
        self._clock = monotonic(clock or SystemClock()) if shared is None else shared.clock

        def stored(kind: str) -> _ProcessFailures | _StoredFailures:
            if shared is None:
                return _ProcessFailures(entries_max)
            return _StoredFailures(shared, kind)

        self._accounts = _Counters(
            stored("account"), account_attempts, account_delay_seconds, account_delay_seconds_max
        )
        self._addresses = _Counters(
            stored("address"), address_attempts, address_delay_seconds, ADDRESS_DELAY_SECONDS_MAX
        )

    async def check(self, account: str, client: ClientAddress, device: str = "") -> float:
        """Count an attempt, and return the seconds to wait before the password is verified.

        `device` is a known one, or the session of a user who is signed in. Raises RateError, with
        the seconds to wait, if it has made too many; without one, if the address has.
        """
        await self._count(device or client.network)
        wait = await self._accounts.count(account.casefold(), self._clock.now(), is_rejected=False)
        return max(0, wait) / 1_000

    async def check_address(self, client: ClientAddress) -> None:
        """Count an attempt of an address only: for secrets that are too long to be guessed."""
        await self._count(client.network)

    async def _count(self, source: str) -> None:
        wait = await self._addresses.count(source, self._clock.now(), is_rejected=True)
        if wait > 0:
            raise RateError(
                "Too many attempts to sign in: wait.", retry_after=math.ceil(wait / 1_000)
            )

    async def succeeded(self, account: str, client: ClientAddress, device: str = "") -> None:
        """Forget the account's failures, and this attempt of the device or address."""
        account = account.casefold()
        await self._accounts.forget(account)
        await self._addresses.undo(device or client.network)
        self.known.signed_in(account, client)

    def is_known(self, account: str, client: ClientAddress, device: str = "") -> bool:
        """Return whether this user has signed in from this device or address before: such attempts
        go first when there are more than can be verified."""
        return bool(device) or self.known.has_address(account.casefold(), client)


class _Counters:
    """Failures of one kind of name."""

    def __init__(
        self,
        stored: "_ProcessFailures | _StoredFailures",
        free: int,
        delay_seconds: float,
        delay_seconds_max: float,
    ) -> None:
        self._stored = stored
        self._free = free
        self._delay_ms = round(delay_seconds * 1_000)
        self._delay_ms_max = round(delay_seconds_max * 1_000)

    async def count(self, name: str, now: int, *, is_rejected: bool) -> int:
        """Count an attempt; return the milliseconds to wait before it. `is_rejected`: one that has
        to wait is not counted."""

        def count(failures: _Failures) -> int:
            wait = min(failures.blocked_until - now, self._delay_ms_max)  # a clock may be set back
            if wait > 0 and is_rejected:
                return wait
            if now - failures.last > FORGET_SECONDS * 1_000:
                failures.count = failures.blocked_until = 0
            failures.count += 1
            failures.last = now
            if (beyond := failures.count - self._free) >= 0:
                delay = self._delay_ms * 2 ** min(beyond, _DOUBLINGS_MAX)
                failures.blocked_until = now + min(delay, self._delay_ms_max)
            return wait

        return await self._stored.update(name, count)

    async def forget(self, name: str) -> None:
        def forget(failures: _Failures) -> None:
            failures.count = 0

        await self._stored.update(name, forget)

    async def undo(self, name: str) -> None:
        def undo(failures: _Failures) -> None:
            failures.count -= 1
            failures.blocked_until = 0

        await self._stored.update(name, undo)


class _ProcessFailures:
    """Failures in this process. Bounded: beyond it, the name that was idle longest is forgotten."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._failures: dict[str, _Failures] = {}

    async def update(self, name: str, change: Callable[[_Failures], R]) -> R:
        failures = self._failures.pop(name, None) or _Failures()
        result = change(failures)
        if failures.count > 0:
            self._failures[name] = failures
        if len(self._failures) > self._entries_max:
            del self._failures[next(iter(self._failures))]
        return result


class _StoredFailures:
    """Failures in rows of an engine. Updates of one process wait for each other."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self._engine = engine
        self._kind = kind
        self._lock = asyncio.Lock()

    async def update(self, name: str, change: Callable[[_Failures], R]) -> R:
        def changed(value: bytes | None) -> tuple[bytes | None, R]:
            failures = _Failures() if value is None else _decode(value)
            result = change(failures)
            return _encode(failures) if failures.count > 0 else None, result

        text = f"{self._kind} {name}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=16).hexdigest()
        async with self._lock:
            return await update_service_row(
                self._engine, f"login:{digest}", changed, kept_seconds=FORGET_SECONDS
            )


_encode = msgspec.json.Encoder().encode


def _decode(value: bytes) -> _Failures:
    try:
        return msgspec.json.decode(value, type=_Failures)
    except msgspec.DecodeError:  # another program has written it
        return _Failures()
