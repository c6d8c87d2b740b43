"""Attempts: how a store runs the work of a transaction until one commits.

    1. The first attempt may assume rows that it does not read: see `assumptions`.
    2. After a wrong assumption, the next one runs at once: no other writer need be in the way.
    3. All others run one at a time within the store, with pauses if other processes win again and
       again, and give up after `TRANSACTION_ATTEMPTS_MAX`.

A store has one object that makes its attempts, and a copy of the store has another one
(`Store.with_attempts`): an operation that only reads has `NoAttempts`, a service runs them within a
quota, and a migration runs them with its own class of transactions.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Never, Protocol, TypeVar

from keyhouse.errors import (
    ConflictError,
    ContentionError,
    DataError,
    DeclarationError,
    LimitError,
    UsageError,
)
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.store.space_guard import SpaceGuard
from keyhouse.store.writes.transaction import Transaction, WrittenSpace

R = TypeVar("R")

Work = Callable[[Transaction], Awaitable[R]]

_ATTEMPTS_BEFORE_PAUSE = 8
"""Attempts of a transaction that loses to other processes before it waits between two of them."""


class GuardedSpace(WrittenSpace, Protocol):
    """A space that only its own code may write: a Store is one."""

    @property
    def guard(self) -> SpaceGuard: ...


class Attempts:
    """Makes the attempts of a store, each in a new transaction of this class."""

    def __init__(self, transaction_type: type[Transaction] = Transaction) -> None:
        self.transaction_type = transaction_type
        self._lock = asyncio.Lock()

    def check(self, verb: str) -> None:
        """Raise DeclarationError if `verb`, which writes without `run`, is rejected here."""

    async def run(
        self, space: GuardedSpace, work: Work[R], batch_id: str | None = None
    ) -> tuple[R, int]:
        """Run `work` until it commits; return its result and the revision of the commit."""
        now = space.engine.clock.now()
        if space.guard.is_due(now):
            await space.guard.check()
        tx = self.transaction_type(space, now, is_first_attempt=True)
        started = work(tx)
        try:
            result = await started
        except Exception:
            if not hasattr(started, "__await__"):
                raise _not_async(work, started) from None
            if not tx.rows.assumed:
                raise
            # the error may come of an assumption that is no longer true: decide by what is stored
            return await self._retry(space, work, batch_id, has_assumed=True)
        try:
            if (revision := await tx.commit(batch_id=batch_id)) is not None:
                return result, revision
        except (ConflictError, DataError, LimitError):  # nothing was written
            if not tx.rows.assumed:
                raise
        return await self._retry(space, work, batch_id, has_assumed=bool(tx.rows.assumed))

    async def _retry(
        self, space: GuardedSpace, work: Work[R], batch_id: str | None, *, has_assumed: bool
    ) -> tuple[R, int]:
        """Run work that has lost a race again until it commits."""

        async def attempt() -> tuple[R, int | None]:
            tx = self.transaction_type(space)
            result = await work(tx)
            return result, await tx.commit(batch_id=batch_id)

        if has_assumed:
            result, revision = await attempt()
            if revision is not None:
                return result, revision
        async with self._lock:
            for number in range(1, TRANSACTION_ATTEMPTS_MAX):
                result, revision = await attempt()
                if revision is not None:
                    return result, revision
                if number >= _ATTEMPTS_BEFORE_PAUSE:
                    await asyncio.sleep(random.uniform(0, 0.001 * min(number, 50)))
        raise ContentionError(
            "The transaction lost every race: too many writers of the same rows. Try again later.",
            attempts=TRANSACTION_ATTEMPTS_MAX,
            space=space.space,
        )


class NoAttempts(Attempts):
    """Rejects every write of an operation with `access="read"`, with DeclarationError."""

    def check(self, verb: str) -> Never:
        raise DeclarationError(
            "An operation with access=read must not write: declare it with access=write."
        )

    async def run(
        self, space: GuardedSpace, work: Work[R], batch_id: str | None = None
    ) -> tuple[R, int]:
        self.check("transact")


def _not_async(work: Callable[..., object], returned: object) -> UsageError:
    return UsageError(
        "A transaction runs an async function: write `async def work(tx): …`, or return what the "
        "verb of `tx` returns.",
        work=getattr(work, "__qualname__", repr(work)),
        returned=type(returned).__name__,
    )
