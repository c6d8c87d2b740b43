"""Usage and quotas: how many keys and bytes a tenant stores, and whether it may store more.

Theory of operation. Usage is counted by a scan, and then adjusted by every write of this process.
No row of the tenant is stored for it, so the keyspace stays the schema's own.

- *Counting while others write.* A scan reads page after page, each at one revision. A write is
  identified by its key and the revision of its commit: if that revision is not newer than that of
  the page with the key, the page has included it; otherwise its size is added to the count. Writes
  that finish during a scan are collected and applied to its result by the same rule. So within one
  process a count is exact.
- *Reserving.* A write reserves its growth before it commits, so concurrent writers of one process
  never exceed the quota together. Space that a pending deletion will free is not given away before
  it is committed.
- *Unknown outcomes.* After a timeout or a cancelled write, its growth counts as stored until the
  next count.
- *Several processes.* If others write for the tenant too, growth must be granted beforehand, and
  counts are made for grants: see `quota_grants`. The rest of this page holds for one process.
- *Staleness.* Writes of other programs and expired rows are seen by the next count. A count is
  repeated when it is older than `USAGE_AGE_SECONDS_MAX`, near the quota (nine tenths of it) when it
  is older than `USAGE_NEAR_SECONDS_MAX`, and before a write is rejected, unless it was made within
  the last second. A count takes at most a twentieth of the time: one that took long is repeated
  later, so that a rejection is not more expensive than a write.

| state of `Usage` | `current` | a write |
|---|---|---|
| never counted | None | counts first |
| counted | counted + own writes since | adjusts the count |
| counting again | as before | adjusts the old count and is collected for the new one |
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from time import perf_counter
from typing import NamedTuple, TypeVar

from keyhouse.errors import QuotaError, UnknownOutcomeError
from keyhouse.service.limits import (
    USAGE_AGE_SECONDS_MAX,
    USAGE_NEAR_SECONDS_MAX,
    USAGE_RECOUNT_SECONDS_MIN,
)
from keyhouse.service.quota import COUNT_PAUSE_FACTOR, EMPTY, Quota, Size
from keyhouse.service.quota_grants import QuotaGrants
from keyhouse.store import RowChange, Store, Transaction, UsagePage

__all__ = ["Quota", "Reservation", "Size", "Usage", "UsageDelta", "measure", "row_size"]

T = TypeVar("T")


class UsageDelta(NamedTuple):
    """The effect of one write on one key. `revision` 0: the outcome is unknown."""

    key: str
    size: Size
    revision: int = 0


class Reservation:
    """Space held for writes that have not committed."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = EMPTY


class _Count:
    """The result of one scan, adjusted by later writes of this process."""

    __slots__ = ("_revisions", "_throughs", "counted_at", "seconds", "size")

    def __init__(self, counted_at: int) -> None:
        self.size = EMPTY
        self.counted_at = counted_at
        self.seconds = 0.0  # that it took
        self._throughs: list[str] = []
        self._revisions: list[int] = []

    @property
    def revision(self) -> int:
        """The newest revision of a page."""
        return max(self._revisions, default=0)

    def add_page(self, page: UsagePage) -> None:
        self.size += Size(page.keys, page.bytes)
        if page.through is not None:
            self._throughs.append(page.through)
        self._revisions.append(page.revision)

    def apply(self, delta: UsageDelta) -> None:
        """Add a write, unless the page of its key included it."""
        page = bisect_left(self._throughs, delta.key)
        if not delta.revision or delta.revision > self._revisions[page]:
            self.size += delta.size


class Usage:
    """The usage of one tenant."""

    __slots__ = (
        "_count",
        "_grants",
        "_lock",
        "_pending",
        "_quota",
        "_reserved",
        "_since_scan",
        "_store",
    )

    def __init__(self, store: Store, quota: Quota) -> None:
        self._store = store
        self._quota = quota
        self._count: _Count | None = None
        self._reserved = EMPTY
        self._pending = 0
        self._since_scan: list[UsageDelta] | None = None
        self._lock = asyncio.Lock()
        self._grants: QuotaGrants | None = None
        if quota.is_shared:
            self._grants = QuotaGrants(
                store.engine,
                store.space,
                quota,
                pending=lambda: self._reserved,
                count=self._count_again,
            )

    @property
    def current(self) -> Size | None:
        """Committed keys and bytes, as far as this process knows; None before the first count."""
        return None if self._count is None else self._count.size

    @property
    def is_busy(self) -> bool:
        """True while a write or a count is in flight."""
        return self._pending > 0 or self._lock.locked()

    async def count(self) -> Size:
        """Count again, while others write."""
        return (await self._count_again()).size

    async def _count_again(self) -> _Count:
        async with self._lock:
            return await self._scan()

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        reservation: Reservation | None = None,
        batch_id: str | None = None,
    ) -> tuple[T, int]:
        """Run `work` in a transaction within the quota; return its result and the revision of the
        commit.

        Raises QuotaError if the growth does not fit. It is taken out of `reservation` first, if one
        is given.
        """
        self._pending += 1
        try:
            if self._grants is not None:
                return await self._transact(work, reservation, batch_id)
            await self._refresh(self._age_seconds_max())
            try:
                return await self._transact(work, reservation, batch_id)
            except QuotaError:
                if not await self._refresh(USAGE_RECOUNT_SECONDS_MIN):
                    raise
            return await self._transact(work, reservation, batch_id)
        finally:
            self._pending -= 1

    async def reserve(self, size: Size) -> Reservation:
        """Hold space for several transactions; QuotaError if there is not enough. Release it
        afterwards."""
        if self._grants is not None:
            await self._grants.require(size.growth)
            return self._hold(Reservation(), size)
        await self._refresh(self._age_seconds_max())
        try:
            return self._hold(Reservation(), size)
        except QuotaError:
            if not await self._refresh(USAGE_RECOUNT_SECONDS_MIN):
                raise
        return self._hold(Reservation(), size)

    def release(self, held: Reservation) -> None:
        self._reserved -= held.size
        held.size = EMPTY

    async def _transact(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        reservation: Reservation | None,
        batch_id: str | None,
    ) -> tuple[T, int]:
        held = Reservation()
        deltas: list[UsageDelta] = []
        revision = -1

        async def measured(tx: Transaction) -> T:
            result = await work(tx)
            self.release(held)
            deltas[:] = [_delta(change) for change in await tx.rows.changes()]
            growth = sum((delta.size for delta in deltas), EMPTY)
            if reservation is not None:
                self._draw(reservation, growth.growth)
            if self._grants is not None:
                await self._grants.require(growth.growth)
            self._hold(held, growth)
            return result

        try:
            result, revision = await self._store.attempts.run(self._store, measured, batch_id)
        except (UnknownOutcomeError, asyncio.CancelledError):
            revision = 0
            raise
        finally:
            self.release(held)
            if revision >= 0:
                self._settle(deltas, revision)
        return result, revision

    def _hold(self, held: Reservation, size: Size) -> Reservation:
        if self._grants is None:
            self._quota.check((self.current or EMPTY) + self._reserved, size)
        held.size = size.growth
        self._reserved += held.size
        return held

    def _draw(self, reservation: Reservation, size: Size) -> None:
        drawn = Size(min(size.keys, reservation.size.keys), min(size.bytes, reservation.size.bytes))
        reservation.size -= drawn
        self._reserved -= drawn

    def _settle(self, deltas: Sequence[UsageDelta], revision: int) -> None:
        for delta in deltas:
            size = delta.size if revision else delta.size.growth
            settled = UsageDelta(delta.key, size, revision)
            if self._since_scan is not None:
                self._since_scan.append(settled)
            if self._count is not None:
                self._count.apply(settled)
        if self._grants is not None:
            change = sum((delta.size for delta in deltas), EMPTY)
            self._grants.settle(change if revision else change.growth, revision)

    async def _refresh(self, age_seconds_max: float) -> bool:
        """Count again if the count is older than this; return whether it was counted."""
        if not self._is_older_than(age_seconds_max):
            return False
        async with self._lock:
            if self._is_older_than(age_seconds_max):  # else another writer has just counted
                await self._scan()
        return True

    def _age_seconds_max(self) -> float:
        """Return the age at which a write counts again."""
        near = self._count is not None and self._quota.is_near(self._count.size)
        return USAGE_NEAR_SECONDS_MAX if near else USAGE_AGE_SECONDS_MAX

    def _is_older_than(self, seconds: float) -> bool:
        count = self._count
        if count is None:
            return True
        least = max(seconds, count.seconds * COUNT_PAUSE_FACTOR)
        return not 0 <= self._store.engine.clock.now() - count.counted_at < least * 1_000

    async def _scan(self) -> _Count:
        since: list[UsageDelta] = []
        self._since_scan = since
        try:
            count = await _count(self._store)
        finally:
            self._since_scan = None
        for delta in since:
            count.apply(delta)
        self._count = count
        return count


async def measure(store: Store) -> Size:
    """Count the keys and bytes of a space now."""
    return (await _count(store)).size


async def _count(store: Store) -> _Count:
    start = perf_counter()
    count = _Count(store.engine.clock.now())
    async with aclosing(store.usage()) as pages:
        async for page in pages:
            count.add_page(page)
    count.seconds = perf_counter() - start
    return count


def _delta(change: RowChange) -> UsageDelta:
    key, before, after = change
    size = row_size(key, after) - row_size(key, before)
    return UsageDelta(key, size)


def row_size(key: str, value: bytes | None) -> Size:
    """Return the size of a row; None as the value means that there is none."""
    return EMPTY if value is None else Size(1, len(key.encode()) + len(value))
