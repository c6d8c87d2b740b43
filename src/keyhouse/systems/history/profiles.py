"""Profiles, the tenants of viewing history.

A profile that is being forgotten takes no writes: they wait until it is empty.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from keyhouse.engine import Engine
from keyhouse.errors import ContentionError
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.systems.history.schema import SCHEMAS

__all__ = ["Profile"]

_FORGET_ATTEMPTS = 5


class Profile(Tenant):
    """`entries_max` is the number of entries that it keeps."""

    def __init__(self, name: str, engine: Engine, quota: Quota, *, entries_max: int) -> None:
        super().__init__(name, SCHEMAS[0], engine, quota)
        self.entries_max = entries_max
        self._writers = 0
        self._forgetting = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_busy(self) -> bool:
        return super().is_busy or self._writers > 0 or self._forgetting.locked()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """`async with profile.writing():` a write that waits while the profile is being forgotten."""
        while self._forgetting.locked():
            async with self._forgetting:
                pass
        self._writers += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._writers -= 1
            if not self._writers:
                self._idle.set()

    async def forget(self) -> None:
        """Erase all of the profile. Repeat a call that was interrupted: it continues."""
        async with self._forgetting:
            await self._idle.wait()
            for attempt in range(1, _FORGET_ATTEMPTS + 1):
                try:
                    await self.store.forget()
                    return
                except ContentionError:  # another process has written
                    if attempt == _FORGET_ATTEMPTS:
                        raise
