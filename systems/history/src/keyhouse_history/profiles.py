"""Profiles, the tenants of viewing history.

A profile that is being forgotten takes no writes: they wait until it is empty.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from keyhouse.engine import Engine
from keyhouse.errors import ContentionError
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.store import Transaction
from keyhouse_history.schema import SCHEMAS

__all__ = ["Profile"]

R = TypeVar("R")

_FORGET_ATTEMPTS = 5


class Profile(Tenant):
    """`entries_max` is the number of entries that it keeps."""

    def __init__(self, name: str, engine: Engine, quota: Quota, *, entries_max: int) -> None:
        super().__init__(name, SCHEMAS[0], engine, quota)
        self.entries_max = entries_max
        self._writers = 0
        self._forgetting = asyncio.Lock()
        self._idle: asyncio.Event | None = None  # set when the last writer is done

    @property
    def is_busy(self) -> bool:
        return super().is_busy or self._writers > 0 or self._forgetting.locked()

    async def write(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        """Run `work` in a transaction, after the profile is forgotten if it is being forgotten."""
        while self._forgetting.locked():
            async with self._forgetting:
                pass
        self._writers += 1
        try:
            return (await self.transact(work))[0]
        finally:
            self._writers -= 1
            if self._idle is not None and not self._writers:
                self._idle.set()

    async def forget(self) -> None:
        """Erase all of the profile. Repeat a call that was interrupted: it continues."""
        async with self._forgetting:
            if self._writers:
                self._idle = asyncio.Event()
                await self._idle.wait()
                self._idle = None
            for attempt in range(1, _FORGET_ATTEMPTS + 1):
                try:
                    await self.store.forget()
                    return
                except ContentionError:  # another process has written
                    if attempt == _FORGET_ATTEMPTS:
                        raise
