"""Passwords: Argon2id in threads, at most two at once, and one where there are two cores.

A hash takes 64 MiB and a tenth of a second on purpose. Threads with low priority compute it and
leave one core free, so that other requests are not delayed; further logins wait in a bounded queue,
and beyond it get 503. Preferred ones, of addresses from which this user signed in before, have a
separate queue that goes first, so that a flood of logins does not keep them out.
"""

from collections import Counter
from typing import Any, Final

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

from keyhouse.errors import LimitError, UnreadableError
from keyhouse.normalization import normalized
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.limits import (
    PASSWORD_BYTES_MAX,
    PASSWORD_HASHES_MAX,
    PASSWORD_HASHES_PENDING_MAX,
)
from keyhouse.service.thread_priority import lower_priority, spare_cores

__all__ = ["PasswordCheck", "PasswordParameters", "Passwords"]

PREFERRED_MAX: Final = 2
"""Preferred calls of one account at once."""


class PasswordParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a hash. A changed cost is applied at the next login of each user."""

    time_cost: int = 3
    memory_kib: int = 64 * 1_024
    parallelism: int = 1
    hash_bytes: int = 32
    salt_bytes: int = 16


class PasswordCheck(msgspec.Struct, frozen=True):
    """The result of a login. Store `new_hash`, if there is one, in place of the old hash."""

    is_valid: bool
    new_hash: str | None = None


class Passwords:
    """Hashes and verifies passwords."""

    def __init__(
        self,
        parameters: PasswordParameters | None = None,
        *,
        pending_max: int = PASSWORD_HASHES_PENDING_MAX,
    ) -> None:
        self._parameters = parameters or PasswordParameters()
        self._hasher = _hasher(self._parameters)
        self._pool = BlockingPool(
            threads_max=spare_cores(PASSWORD_HASHES_MAX), pending_max=pending_max
        )
        self._unknown: str | None = None
        self._preferred: Counter[str] = Counter()

    def use(self, parameters: PasswordParameters) -> None:
        """Use this cost from the next hash on: where it is stored, and was changed."""
        if parameters != self._parameters:
            self._parameters, self._unknown = parameters, None
            self._hasher = _hasher(parameters)

    async def hash(self, password: str) -> str:
        """Return a hash with its parameters and salt. Raises LimitError, or BusyError (503)."""
        return await self._pool.run(self.hash_now, _normalized(password))

    async def verify(
        self, stored: str | None, password: str, *, preferred: str = ""
    ) -> PasswordCheck:
        """Compare a password with the stored hash; None: the account does not exist.

        That takes as long as a wrong password, so that a client cannot tell the difference.
        `preferred` is the account of a known client (see `LoginGuard.is_known`): such calls go
        before the others, up to two of an account, so that none of them delays the other accounts.
        """
        password = _normalized(password)
        if not preferred or self._preferred[preferred] >= PREFERRED_MAX:
            return await self._pool.run(self.verify_now, stored, password)
        self._preferred[preferred] += 1
        try:
            return await self._pool.run_first(self.verify_now, stored, password)
        finally:
            self._preferred[preferred] -= 1
            self._preferred += Counter()  # without those that are 0

    async def close(self) -> None:
        await self._pool.close()

    def hash_now(self, password: str) -> str:
        lower_priority()
        hashed: str = self._hasher.hash(password)
        return hashed

    def verify_now(self, stored: str | None, password: str) -> PasswordCheck:
        lower_priority()
        unknown = self._unknown
        if unknown is None:  # by the first login of any account, so that it tells nothing
            unknown = self._unknown = self.hash_now("")
        try:
            self._hasher.verify(stored or unknown, password)
        except InvalidHashError:
            raise UnreadableError("A stored password hash does not decode.") from None
        except VerificationError:
            return PasswordCheck(False)
        if stored is None:
            return PasswordCheck(False)
        is_outdated = self._hasher.check_needs_rehash(stored)
        return PasswordCheck(True, self.hash_now(password) if is_outdated else None)


def _hasher(cost: PasswordParameters) -> Any:
    return PasswordHasher(
        time_cost=cost.time_cost,
        memory_cost=cost.memory_kib,
        parallelism=cost.parallelism,
        hash_len=cost.hash_bytes,
        salt_len=cost.salt_bytes,
        type=Type.ID,
    )


def _normalized(password: str) -> str:
    """Keyboards encode the same characters differently: NFKC, as NIST 800-63B asks."""
    if len(password) > PASSWORD_BYTES_MAX:
        raise LimitError("The password is too long.", limit=PASSWORD_BYTES_MAX)
    try:
        text = normalized("NFKC", password)
    except ValueError as error:
        raise LimitError(f"The password {error}.") from None
    if len(text.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX:
        raise LimitError("The password is too long.", limit=PASSWORD_BYTES_MAX)
    return text
