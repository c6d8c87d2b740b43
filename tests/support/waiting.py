"""Waits for a condition. The limit is that of a machine that is busy with other tests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS_MAX = 60
_PAUSE_SECONDS = 0.005


def wait_until(holds: Callable[[], T]) -> T:
    """Return what `holds` returns as soon as it is true."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (value := holds()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(_PAUSE_SECONDS)
    return value


async def until(holds: Callable[[], T | Awaitable[T]]) -> T:
    """Return what `holds` returns as soon as it is true, on the loop."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            value = holds()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await asyncio.sleep(_PAUSE_SECONDS)
