"""Slows down guesses of passwords and codes, by account and by the client's address.

An attempt counts when it starts, so parallel guesses are counted too, and a success takes it back.
Beyond a number of free attempts, the next ones of an address are rejected for a time that doubles.
Attempts of an account are never rejected, because anybody can make them: the service waits before
it verifies their password, for at most a few seconds. Attempts of a device from which the user has
signed in before count by device, not by address (`known_clients`). So nobody locks out somebody
else; from the same address, that holds for clients that keep the device cookie.
"""

import math
from typing import Final

import msgspec

from keyhouse.clock import Clock, SystemClock, monotonic
from keyhouse.errors import RateError
from keyhouse.http import ClientAddress
from keyhouse.service.accounts.known_clients import KnownClients
from keyhouse.service.limits import LOGIN_ENTRIES_MAX

__all__ = ["LoginGuard"]

ACCOUNT_DELAY_SECONDS_MAX: Final = 2.0
ADDRESS_DELAY_SECONDS_MAX: Final = 900.0
FORGET_SECONDS: Final = 3_600.0
"""Failures are forgotten after this time without an attempt."""

_DOUBLINGS_MAX: Final = 32


class _Failures(msgspec.Struct):
    count: int = 0
    last: int = 0
    blocked_until: int = 0


class LoginGuard:
    """`check` before the password is verified, `succeeded` after it was right.

    `account_attempts` and `address_attempts` are free; then the delays start at
    `account_delay_seconds` and `address_delay_seconds`.
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
    ) -> None:
        self._clock = monotonic(clock or SystemClock())
        self.known = known or KnownClients(entries_max=entries_max)
        self._accounts = _Counters(
            account_attempts, account_delay_seconds, account_delay_seconds_max, entries_max
        )
        self._addresses = _Counters(
            address_attempts, address_delay_seconds, ADDRESS_DELAY_SECONDS_MAX, entries_max
        )

    def check(self, account: str, client: ClientAddress, device: str = "") -> float:
        """Count an attempt, and return the seconds to wait before the password is verified.

        `device` is a known one, or the session of a user who is signed in. Raises RateError, with
        the seconds to wait, if it has made too many; without one, if the address has.
        """
        now, account = self._clock.now(), account.casefold()
        self._count(device or client.network, now)
        wait = self._accounts.wait_ms(account, now)
        self._accounts.count(account, now)
        return max(0, wait) / 1_000

    def check_address(self, client: ClientAddress) -> None:
        """Count an attempt of an address only: for secrets that are too long to be guessed."""
        self._count(client.network, self._clock.now())

    def _count(self, source: str, now: int) -> None:
        if (wait := self._addresses.wait_ms(source, now)) > 0:
            raise RateError(
                "Too many attempts to sign in: wait.", retry_after=math.ceil(wait / 1_000)
            )
        self._addresses.count(source, now)

    def succeeded(self, account: str, client: ClientAddress, device: str = "") -> None:
        """Forget the account's failures, and this attempt of the device or address."""
        account = account.casefold()
        self._accounts.forget(account)
        self._addresses.undo(device or client.network)
        self.known.signed_in(account, client)

    def is_known(self, account: str, client: ClientAddress, device: str = "") -> bool:
        """Return whether this user has signed in from this device or address before: such attempts
        go first when there are more than can be verified."""
        return bool(device) or self.known.has_address(account.casefold(), client)


class _Counters:
    """Failures by name. Bounded: beyond it, the one that was idle longest is forgotten."""

    def __init__(
        self, free: int, delay_seconds: float, delay_seconds_max: float, entries_max: int
    ) -> None:
        self._free = free
        self._delay_ms = round(delay_seconds * 1_000)
        self._delay_ms_max = round(delay_seconds_max * 1_000)
        self._entries_max = entries_max
        self._failures: dict[str, _Failures] = {}

    def wait_ms(self, name: str, now: int) -> int:
        found = self._failures.get(name)
        if found is None:
            return 0
        return min(found.blocked_until - now, self._delay_ms_max)  # the clock may be set back

    def count(self, name: str, now: int) -> None:
        found = self._failures.pop(name, None)
        if found is None or now - found.last > FORGET_SECONDS * 1_000:
            found = _Failures()
        found.count += 1
        found.last = now
        if (beyond := found.count - self._free) >= 0:
            delay = self._delay_ms * 2 ** min(beyond, _DOUBLINGS_MAX)
            found.blocked_until = now + min(delay, self._delay_ms_max)
        self._failures[name] = found
        if len(self._failures) > self._entries_max:
            del self._failures[next(iter(self._failures))]

    def forget(self, name: str) -> None:
        self._failures.pop(name, None)

    def undo(self, name: str) -> None:
        found = self._failures.get(name)
        if found is not None:
            found.count -= 1
            found.blocked_until = 0
            if found.count <= 0:
                del self._failures[name]
