"""Turns: what one plugin asks is done in the order in which it was asked, as far as it could tell the difference.

A plugin may publish a `set`, wait for nothing, and `get` the key: it must find its value. So whoever reads a key, or writes
it, waits for the writes of that key that came before; whoever looks at many keys waits for all writes of the plugin. Others
wait for nobody. It holds within a process: of several that share the load, each has its own order.
"""

import asyncio
from collections.abc import Iterable

__all__ = ["Turns", "Write"]


class Turns:
    """The writes under way of one plugin, the last one of each key."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: dict[str, Write] = {}

    @property
    def quiet(self) -> bool:
        return not self._writes

    async def after_writes_of(self, keys: Iterable[str]) -> None:
        for key in keys:
            if (write := self._writes.get(key)) is not None:
                await write.ended()

    async def after_all_writes(self) -> None:
        for write in list(self._writes.values()):
            await write.ended()

    def write(self, *keys: str) -> "Write":
        """`with turns.write(key) as earlier:` it is its turn when those that are `earlier` have `ended`."""
        return Write(self._writes, keys)


class Write:
    """Under way from the beginning of its block to the end."""

    __slots__ = ("_end", "_keys", "_over", "_writes")

    def __init__(self, writes: "dict[str, Write]", keys: tuple[str, ...]) -> None:
        self._writes = writes
        self._keys = keys
        self._over = False
        self._end: asyncio.Future[None] | None = None
        """Made for whoever waits for it: hardly ever anybody does."""

    def __enter__(self) -> "list[Write]":
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
        self._over = True
        if self._end is not None:
            self._end.set_result(None)

    async def ended(self) -> None:
        if self._over:
            return
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._end)
