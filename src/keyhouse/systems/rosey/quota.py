"""Quotas: how many keys and bytes a plugin keeps, and whether it may keep more.

A plugin's room is counted when it first writes, and again at each census; between two, this process adds what it writes. So
the quota is exact where one process serves, and late by a census where several do. A write that makes less of it is always
allowed.
"""

import asyncio
from typing import Final

from keyhouse.errors import QuotaError
from keyhouse.store import Store
from keyhouse.systems.rosey.schema import VALUE

__all__ = ["Quota", "Room", "measure"]

_PAGE_ROWS: Final = 500


class Room:
    """What a plugin keeps, as far as this process knows."""

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
        self._keys_max = keys_max
        self._bytes_max = bytes_max

    def __bool__(self) -> bool:
        return bool(self._keys_max or self._bytes_max)

    def check(self, room: Room, keys: int, bytes: int) -> None:
        """Whether so much more may be kept; QuotaError if not."""
        if self._keys_max and keys > 0 and room.keys + keys > self._keys_max:
            raise QuotaError(
                "The plugin's quota of keys is used up: delete some.", keys=room.keys, limit=self._keys_max
            )
        if self._bytes_max and bytes > 0 and room.bytes + bytes > self._bytes_max:
            raise QuotaError(
                "The plugin's quota of bytes is used up: delete something.", bytes=room.bytes, limit=self._bytes_max
            )


async def measure(store: Store) -> Room:
    """Count what a plugin keeps, page by page, so that others have their turn."""
    room = Room()
    cursor: str | None = None
    while True:
        page = await store.page(VALUE, limit=_PAGE_ROWS, cursor=cursor)
        for entry in page.entries:
            room.grow(1, size_of(entry.key, len(VALUE.encode(entry.record))))
        if (cursor := page.cursor) is None:
            return room
        await asyncio.sleep(0)


def size_of(key: str, value_bytes: int) -> int:
    return len(key.encode()) + value_bytes
