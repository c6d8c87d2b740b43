"""How much a customer may keep: keys and bytes.

What is used is measured by a scan, and then carried along with the writes of this process; after a while it is measured
again, because other processes write too, and scenes expire. A write reserves what it will add before it commits, so writers
of one process never pass the quota together. What was written while it was measured is added to what was found, though the
scan may have seen it. Nobody is refused by an old measurement, or such a one: before a refusal it is taken anew. So it is
after a write of which it is not known what became of it.
No row is kept for this, so the keyspace stays the document's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import ContentionError, EngineError, QuotaError
from keyhouse.systems.streamkit.versions import PAIRS

R = TypeVar("R")

_MEASURED_MS_MAX: Final = 300_000
"""How old a measurement may be."""

_RETRY_SECONDS: Final = 3_600
"""What a refusal says: room comes from deleting, or from scenes that expire, and neither is a matter of seconds."""


class QuotaSize(msgspec.Struct, frozen=True):
    keys: int = 0
    bytes: int = 0

    def __add__(self, other: "QuotaSize") -> "QuotaSize":
        return QuotaSize(self.keys + other.keys, self.bytes + other.bytes)

    def __sub__(self, other: "QuotaSize") -> "QuotaSize":
        return QuotaSize(self.keys - other.keys, self.bytes - other.bytes)


NOTHING: Final = QuotaSize()


def size_of(key: str, value: bytes) -> QuotaSize:
    return QuotaSize(1, len(key.encode()) + len(value))


class Room:
    """What one write will add. A write that is tried again reserves anew."""

    __slots__ = ("_quota", "added", "held")

    def __init__(self, quota: "Quota") -> None:
        self._quota = quota
        self.added = NOTHING
        self.held = NOTHING
        """What is reserved of it: room that is only to become free is nobody's yet."""

    def reserve(self, added: QuotaSize) -> None:
        """QuotaError when there is no room for it. What takes room away, or changes nothing, is never refused."""
        self.release()
        self._quota.check(added)
        self.added, self.held = added, QuotaSize(max(added.keys, 0), max(added.bytes, 0))
        self._quota.reserved = self._quota.reserved + self.held

    def release(self) -> None:
        self._quota.reserved = self._quota.reserved - self.held
        self.added = self.held = NOTHING


class Quota:
    """One customer's."""

    __slots__ = ("_customer", "_engine", "_measured_at", "_most", "_used", "_written", "reserved")

    def __init__(self, engine: Engine, customer: str, most: QuotaSize) -> None:
        self._engine = engine
        self._customer = customer
        self._most = most
        self._used = NOTHING
        self._written = NOTHING
        """By this process since it began, deletions left out."""
        self._measured_at: int | None = None
        self.reserved = NOTHING

    async def within(self, write: Callable[[Room], Awaitable[R]]) -> R:
        """Run a write that reserves its room; once more with a new measurement when there seemed to be none."""
        age = await self._measure(_MEASURED_MS_MAX)
        try:
            return await self._run(write)
        except QuotaError:
            if age == 0:
                raise
        await self._measure(0)
        return await self._run(write)

    async def _run(self, write: Callable[[Room], Awaitable[R]]) -> R:
        room = Room(self)
        try:
            result = await write(room)
            self._used = self._used + room.added
            self._written = self._written + room.held
            return result
        except (EngineError, ContentionError, asyncio.CancelledError):
            self._measured_at = None  # it, or a part of it, may be written
            raise
        finally:
            room.release()

    def check(self, added: QuotaSize) -> None:
        after = self._used + self.reserved + added
        for what in ("keys", "bytes"):
            if getattr(added, what) > 0 and getattr(after, what) > getattr(self._most, what):
                raise QuotaError(
                    "The customer's room is used up: delete something first.",
                    quota=what,
                    used=getattr(self._used, what),
                    needed=getattr(added, what),
                    limit=getattr(self._most, what),
                    retry_after=_RETRY_SECONDS,
                )

    async def _measure(self, age_max: int) -> int:
        """Make sure the measurement is no older; how old it is, in milliseconds. 0: it is exact."""
        now = self._engine.clock.now()
        if self._measured_at is not None and 0 <= now - self._measured_at < max(age_max, 1):
            return now - self._measured_at
        before = self._written
        found = await measured(self._engine, self._customer)
        meanwhile = self._written - before
        self._used = found + meanwhile
        self._measured_at = now
        return 0 if meanwhile == NOTHING else 1


async def measured(engine: Engine, customer: str) -> QuotaSize:
    """What the customer keeps now. What is at both versions of its key counts once."""
    keys = size = 0
    for pair in PAIRS.values():
        async for _, row in pair.rows(engine, customer):
            keys += 1
            size += len(row.key.encode()) + len(row.value)
    return QuotaSize(keys, size)
