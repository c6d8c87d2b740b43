"""Key locks: serialise the operations of one tenant per key, in the order in which they arrive.

A client may publish a `set`, wait for nothing, and `get` the key: it must read its own write. So a
read or write of a key waits for earlier writes of that key, and an operation over many keys waits
for all earlier writes of the tenant. Other operations run concurrently. The order holds within one
process; processes that share the load each have their own.
"""

import asyncio
from collections.abc import Iterable

__all__ = ["KeyLocks", "PendingWrite"]


class KeyLocks:
    """The writes in flight of one tenant: the latest of each key."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: dict[str, PendingWrite] = {}

    @property
    def are_free(self) -> bool:
        return not self._writes

    async def wait_for(self, keys: Iterable[str]) -> None:
        """Wait for earlier writes of these keys."""
        for key in keys:
            if (write := self._writes.get(key)) is not None:
                await write.finished()

    async def wait_for_all(self) -> None:
        """Wait for all earlier writes."""
        for write in list(self._writes.values()):
            await write.finished()

    def write(self, *keys: str) -> "PendingWrite":
        """`with locks.write(key) as earlier:` registers a write, which must first wait until those
        `earlier` finish."""
        return PendingWrite(self._writes, keys)


class PendingWrite:
    """A write, in flight until its block is left."""

    __slots__ = ("_future", "_is_finished", "_keys", "_writes")

    def __init__(self, writes: "dict[str, PendingWrite]", keys: tuple[str, ...]) -> None:
        self._writes = writes
        self._keys = keys
        self._is_finished = False
        self._future: asyncio.Future[None] | None = None
        """Created for the first waiter: most writes have none."""

    def __enter__(self) -> "list[PendingWrite]":
        writes = self._writes
        earlier = []
        for key in self._keys:
            if (write := writes.get(key, self)) is not self:
                earlier.append(write)
            writes[key] = self
        return earlier

    def __exit__(self, *_: object) -> None:
        writes = self._writes
        for key in self._keys:
            if writes.get(key) is self:
                del writes[key]
        self._is_finished = True
        if self._future is not None:
            self._future.set_result(None)

    async def finished(self) -> None:
        if self._is_finished:
            return
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._future)
