"""Usage and quotas: how many keys and bytes a tenant stores, and whether it may store more.

Theory of operation. Usage is counted by a scan, and then adjusted by every write of this process.
No row is stored for it, so the keyspace stays the schema's own.

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
- *Staleness.* Writes of other processes and expired rows are seen by the next count. A count is
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
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import msgspec

from keyhouse.errors import QuotaError, UnknownOutcomeError
from keyhouse.service.limits import (
    USAGE_AGE_SECONDS_MAX,
    USAGE_NEAR_SECONDS_MAX,
    USAGE_RECOUNT_SECONDS_MIN,
)
from keyhouse.store import RowChange, Store, Transaction, UsagePage

__all__ = ["Quota", "Reservation", "Size", "Usage", "UsageDelta", "measure", "row_size"]

T = TypeVar("T")

_COUNT_PAUSE_FACTOR: Final = 20
"""A count is not repeated before this many times the time it took: it includes the turns of other
long reads, so counts give way under load."""

_RETRY_AFTER_SECONDS: Final = 3_600
"""Sent with a rejection: space is freed by deleting, or by rows that expire, and neither is a
matter of seconds."""


class Size(msgspec.Struct, frozen=True):
    """A number of keys, and of the bytes of keys and values."""

    keys: int = 0
    bytes: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.keys + other.keys, self.bytes + other.bytes)

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.keys - other.keys, self.bytes - other.bytes)

    @property
    def growth(self) -> "Size":
        """The size with negative numbers set to 0."""
        return Size(max(self.keys, 0), max(self.bytes, 0))


EMPTY: Final = Size()


class Quota(msgspec.Struct, frozen=True):
    """Keys and bytes that one tenant may store; 0 means unlimited."""

    keys: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.keys or self.bytes)

    def is_near(self, used: Size) -> bool:
        """True if nine tenths of it are used."""
        return (0 < self.keys * 9 <= used.keys * 10) or (0 < self.bytes * 9 <= used.bytes * 10)

    def check(self, used: Size, added: Size) -> None:
        """Raise QuotaError if `added` does not fit. A write that does not grow is always
        allowed."""
        for unit in ("keys", "bytes"):
            limit, more = getattr(self, unit), getattr(added, unit)
            if limit and more > 0 and getattr(used, unit) + more > limit:
                raise QuotaError(
                    f"The quota of {unit} is used up: delete something first.",
                    quota=unit,
                    used=getattr(used, unit),
                    needed=more,
                    limit=limit,
                    retry_after=_RETRY_AFTER_SECONDS,
                )


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

    __slots__ = ("_count", "_lock", "_pending", "_quota", "_reserved", "_since_scan", "_store")

    def __init__(self, store: Store, quota: Quota) -> None:
        self._store = store
        self._quota = quota
        self._count: _Count | None = None
        self._reserved = EMPTY
        self._pending = 0
        self._since_scan: list[UsageDelta] | None = None
        self._lock = asyncio.Lock()

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
        self._quota.check((self.current or EMPTY) + self._reserved, size)
        held.size = size.growth
        self._reserved += held.size
        return held

    def _draw(self, reservation: Reservation, size: Size) -> None:
        drawn = Size(min(size.keys, reservation.size.keys), min(size.bytes, reservation.size.bytes))
        reservation.size -= drawn
        self._reserved -= drawn

    def _settle(self, deltas: Iterable[UsageDelta], revision: int) -> None:
        for delta in deltas:
            size = delta.size if revision else delta.size.growth
            settled = UsageDelta(delta.key, size, revision)
            if self._since_scan is not None:
                self._since_scan.append(settled)
            if self._count is not None:
                self._count.apply(settled)

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
        least = max(seconds, count.seconds * _COUNT_PAUSE_FACTOR)
        return not 0 <= self._store.engine.clock.now() - count.counted_at < least * 1_000

    async def _scan(self) -> Size:
        since: list[UsageDelta] = []
        self._since_scan = since
        try:
            count = await _count(self._store)
        finally:
            self._since_scan = None
        for delta in since:
            count.apply(delta)
        self._count = count
        return count.size


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
