"""Clients from which a user has signed in before: requests of others do not limit them.

A limit by account can be used up by anybody who knows the account's name, and one by address by
anybody behind the same address. So a service counts known clients of an account apart from all
others. A client is known by either of

- a cookie that it got when its user signed in (a device cookie, as OWASP calls it). It holds the
  device's random id, the time and a signature over both and the account, so that it counts for that
  account only, in every process that has the key, after a restart, and from any address. It signs
  nobody in: a stolen one has its own limits, and nothing else;
- its address, while this process remembers it: for clients without cookies.
"""

import hmac
import re
import secrets
from hashlib import sha256
from typing import Final

from keyhouse.clock import Clock, SystemClock
from keyhouse.http import ClientAddress, set_cookie
from keyhouse.service.limits import LOGIN_ENTRIES_MAX

__all__ = ["DEVICE_SECONDS", "KnownClients"]

DEVICE_SECONDS: Final = 180 * 24 * 3_600
"""Lifetime of the cookie: browsers keep one for 400 days at most."""

_FUTURE_MS: Final = 24 * 3_600 * 1_000
"""Tolerance for the clock of the process that issued a cookie."""


class KnownClients:
    """`cookie` is the name of the device cookie, and `key` signs it; without them, clients are
    known by their address only."""

    def __init__(
        self,
        *,
        cookie: str = "",
        key: bytes = b"",
        entries_max: int = LOGIN_ENTRIES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self._cookie = cookie
        self._key = key
        self._clock = clock or SystemClock()
        self._entries_max = entries_max
        self._addresses: dict[tuple[str, str], None] = {}
        name = re.escape(cookie)
        self._pattern = re.compile(
            rf"(?:^|;)\s*{name}=([0-9a-f]{{32}})\.([0-9]{{1,15}})\.([0-9a-f]{{64}})\s*(?:;|$)"
        )

    def signed_in(self, account: str, client: ClientAddress) -> None:
        """Remember the address of a user who has signed in. Beyond the maximum, the address that
        was used longest ago is forgotten."""
        pair = (account, client.network)
        self._addresses.pop(pair, None)
        self._addresses[pair] = None
        if len(self._addresses) > self._entries_max:
            del self._addresses[next(iter(self._addresses))]

    def device_cookie(
        self, account: str, client: ClientAddress, *, path: str = "/"
    ) -> tuple[str, str]:
        """Return the header that makes a device known, for the response to a sign-in."""
        id, issued = secrets.token_hex(16), str(self._clock.now())
        value = f"{id}.{issued}.{self._signature(account, id, issued)}"
        return set_cookie(
            self._cookie,
            value,
            client,
            path=path,
            max_age_seconds=DEVICE_SECONDS,
            same_site="Strict",
        )

    def device(self, account: str, cookies: str) -> str:
        """Return the id of a device from which this user has signed in; "" for any other.

        `cookies` is the header of the request.
        """
        found = self._pattern.search(cookies) if self._key else None
        if found is None:
            return ""
        id, issued, signature = found.groups()
        age = self._clock.now() - int(issued)
        is_valid = hmac.compare_digest(signature, self._signature(account, id, issued))
        return id if is_valid and -_FUTURE_MS <= age < DEVICE_SECONDS * 1_000 else ""

    def has_address(self, account: str, client: ClientAddress) -> bool:
        """Return whether this user has signed in from this address."""
        return (account, client.network) in self._addresses

    def _signature(self, account: str, id: str, issued: str) -> str:
        text = f"device\0{id}\0{issued}\0{account}"
        return hmac.new(self._key, text.encode("utf-8", "replace"), sha256).hexdigest()
