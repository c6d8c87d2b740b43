"""Turns: what one plugin asks is done in the order in which it was asked, as far as it could tell the difference.

A plugin may publish a `set`, wait for nothing, and `get` the key: it must find its value. So whoever reads a key, or writes
it, waits for the writes of that key that came before; whoever looks at many keys waits for all writes of the plugin. Others
wait for nobody. It holds within a process: of several that share the load, each has its own order.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

__all__ = ["Turns"]


class Turns:
    """The writes under way of one plugin, the last one of each key."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: dict[str, asyncio.Future[None]] = {}

    @property
    def quiet(self) -> bool:
        return not self._writes

    async def after_writes_of(self, keys: Iterable[str]) -> None:
        for key in keys:
            if (write := self._writes.get(key)) is not None:
                await asyncio.shield(write)

    async def after_all_writes(self) -> None:
        for write in list(self._writes.values()):
            await asyncio.shield(write)

    def write(self, *keys: str) -> "AbstractAsyncContextManager[None]":
        """Within it, no other write of these keys is under way; it begins when those before it have ended."""
        return _Write(self._writes, keys)


class _Write(AbstractAsyncContextManager[None]):
    __slots__ = ("_done", "_keys", "_writes")

    def __init__(self, writes: dict[str, asyncio.Future[None]], keys: tuple[str, ...]) -> None:
        self._writes = writes
        self._keys = keys

    async def __aenter__(self) -> None:
        writes = self._writes
        before = [write for key in self._keys if (write := writes.get(key)) is not None]
        self._done = asyncio.get_running_loop().create_future()
        for key in self._keys:
            writes[key] = self._done
        try:
            for write in before:
                await asyncio.shield(write)
        except BaseException:
            self._end()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for key in self._keys:
            if self._writes.get(key) is self._done:
                del self._writes[key]
        self._done.set_result(None)
