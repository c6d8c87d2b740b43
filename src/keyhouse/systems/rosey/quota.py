"""Quotas: how many keys and bytes a plugin keeps, and whether it may keep more.

What a plugin keeps is counted when it first writes, and again at each census; between two counts this process adds what it
writes. A write reserves what it will add before it commits, so the writers of one process never pass the quota together.

A count takes its time, and goes on while others write. Each page of it is of one revision: a write that is told of
meanwhile, or later, is in the count if its revision is not behind its page's, and is added to it else. So within one process
the quota is exact. What other processes write is known from the next count on, and so is what has expired: until then it
takes up room.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from keyhouse.engine import Page
from keyhouse.errors import QuotaError, UnknownOutcomeError
from keyhouse.store import Store, Transaction
from keyhouse.systems.rosey.schema import VALUE

__all__ = ["Account", "Quota", "Room", "measure"]

T = TypeVar("T")

_PAGE_ROWS: Final = 250


class Room:
    """So many keys, and so many bytes of keys and values."""

    __slots__ = ("bytes", "keys")

    def __init__(self, keys: int = 0, bytes: int = 0) -> None:
        self.keys = keys
        self.bytes = bytes

    def grow(self, keys: int, bytes: int) -> None:
        self.keys += keys
        self.bytes += bytes


class Quota:
    """0: no limit."""

    def __init__(self, keys_max: int, bytes_max: int) -> None:
        self.keys_max = keys_max
        self.bytes_max = bytes_max

    def __bool__(self) -> bool:
        return bool(self.keys_max or self.bytes_max)

    def check(self, room: Room, keys: int, bytes: int) -> None:
        """Whether so much more may be kept; QuotaError if not. What makes less of it is always allowed."""
        if self.keys_max and keys > 0 and room.keys + keys > self.keys_max:
            raise QuotaError(
                "The plugin's quota of keys is used up: delete some.",
                keys=room.keys,
                limit=self.keys_max,
            )
        if self.bytes_max and bytes > 0 and room.bytes + bytes > self.bytes_max:
            raise QuotaError(
                "The plugin's quota of bytes is used up: delete something.",
                bytes=room.bytes,
                limit=self.bytes_max,
            )


class Growth(NamedTuple):
    """What one write did at one key. `revision` 0: it is not known whether it did."""

    key: str
    keys: int
    bytes: int
    revision: int = 0


class Count:
    """What a plugin keeps: what was counted, and what was written since."""

    __slots__ = ("_ends", "_revisions", "room")

    def __init__(self) -> None:
        self.room = Room()
        self._ends: list[str] = []
        self._revisions: list[int] = []

    def page(self, page: Page) -> None:
        """Count the rows of a page; the last one goes on to the end of all keys."""
        for row in page.rows:
            self.room.grow(1, size_of(row.key, row.value))
        if page.more:
            self._ends.append(page.rows[-1].key)
        self._revisions.append(page.revision)

    def add(self, growth: Growth) -> None:
        """A write of this process, unless it was there when its page was read."""
        if (
            not growth.revision
            or growth.revision > self._revisions[bisect_left(self._ends, growth.key)]
        ):
            self.room.grow(growth.keys, growth.bytes)


class Account:
    """What one plugin keeps."""

    __slots__ = ("_count", "_late", "_quota", "_reserved", "_store", "_turn")

    def __init__(self, store: Store, quota: Quota) -> None:
        self._count: Count | None = None
        self._store = store
        self._quota = quota
        self._reserved = Room()
        self._late: list[Growth] | None = None
        self._turn = asyncio.Lock()

    @property
    def kept(self) -> Room | None:
        """What is committed, as far as is known; None until it was counted."""
        return None if self._count is None else self._count.room

    async def count(self) -> Room:
        """Count anew, while others write."""
        async with self._turn:
            return await self._counted()

    async def transact(self, keys: Sequence[str], work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run a write of these keys in a transaction, within the quota: QuotaError when there is no room for it. No other
        write of one of the keys may be under way in this process."""
        if self.kept is None:
            async with self._turn:
                if self.kept is None:
                    await self._counted()
        held = Room()
        grown: list[Growth] = []
        revision = -1

        async def bounded(tx: Transaction) -> tuple[T, Transaction]:
            result = await work(tx)
            self._release(held)
            grown[:] = [await self._growth(tx, key) for key in keys]
            self._reserve(held, grown)
            return result, tx

        try:
            result, tx = await self._store.transact(bounded)
            revision = tx.revision
        except (UnknownOutcomeError, asyncio.CancelledError):
            revision = 0
            raise
        finally:
            self._release(held)
            if revision >= 0:
                self._settle(grown, revision)
        return result

    async def _growth(self, tx: Transaction, key: str) -> Growth:
        before, after = await self._store.row(key), await tx.row(key)
        more = 0 if after is None else size_of(key, after[0])
        less = 0 if before is None else size_of(key, before.value)
        return Growth(key, (after is not None) - (before is not None), more - less)

    def _reserve(self, held: Room, grown: Sequence[Growth]) -> None:
        keys, size = sum(each.keys for each in grown), sum(each.bytes for each in grown)
        room = self.kept or Room()
        self._quota.check(
            Room(room.keys + self._reserved.keys, room.bytes + self._reserved.bytes), keys, size
        )
        held.grow(max(0, keys), max(0, size))  # room that is only to become free is nobody's yet
        self._reserved.grow(held.keys, held.bytes)

    def _release(self, held: Room) -> None:
        self._reserved.grow(-held.keys, -held.bytes)
        held.grow(-held.keys, -held.bytes)

    def _settle(self, grown: Sequence[Growth], revision: int) -> None:
        """Of a write whose outcome is unknown, what it may have added counts, until the next count."""
        for each in grown:
            told = each._replace(revision=revision)
            if not revision:
                told = told._replace(keys=max(0, each.keys), bytes=max(0, each.bytes))
            if self._late is not None:
                self._late.append(told)
            if self._count is not None:
                self._count.add(told)

    async def _counted(self) -> Room:
        late: list[Growth] = []
        self._late = late
        try:
            counted = await _counted(self._store)
        finally:
            self._late = None
        for each in late:
            counted.add(each)
        self._count = counted
        return counted.room


async def measure(store: Store) -> Room:
    """Count what a plugin keeps, page by page, so that others have their turn."""
    return (await _counted(store)).room


async def _counted(store: Store) -> Count:
    count = Count()
    span = VALUE.template.span({})
    while True:
        page = await store.engine.scan(store.space, span, limit=_PAGE_ROWS)
        count.page(page)
        if not page.more:
            return count
        span = span.after(page.rows[-1].key)
        await asyncio.sleep(0)


def size_of(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)
