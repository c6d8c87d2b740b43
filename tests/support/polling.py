"""Wait for a condition. Tests that cannot await it poll it here, and nowhere else."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

R = TypeVar("R")

POLL_SECONDS = 0.02
GIVE_UP_SECONDS = 120.0
"""Longer than any condition takes on a busy machine: only a failing test waits for it."""


@overload
async def until(condition: Callable[[], Awaitable[R]]) -> R: ...
@overload
async def until(condition: Callable[[], R]) -> R: ...
async def until(condition: Callable[[], Any]) -> Any:
    """Return the first true result of a condition, which may be a coroutine function."""
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while True:
            result = condition()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(POLL_SECONDS)


def wait_until(condition: Callable[[], R]) -> R:
    """Return the first true result of a condition, in a thread without an event loop."""
    end = time.monotonic() + GIVE_UP_SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, f"never true: {condition}"
        time.sleep(POLL_SECONDS)
    return value
