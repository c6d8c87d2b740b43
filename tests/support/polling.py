"""Wait for a condition. Tests that cannot await it poll it here, and nowhere else."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

R = TypeVar("R")
Errors = type[BaseException] | tuple[type[BaseException], ...]

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.001, 0.02
GIVE_UP_SECONDS = 120.0
"""Longer than any condition takes on a busy machine: only a failing test waits for it."""


@overload
async def until(condition: Callable[[], Awaitable[R | None]], *, retry: Errors = ...) -> R: ...
@overload
async def until(condition: Callable[[], R | None], *, retry: Errors = ...) -> R: ...
async def until(condition: Callable[[], Any], *, retry: Errors = ()) -> Any:
    """Return the first true result of a condition, which may be a coroutine function and may raise
    the errors of `retry`."""
    pause = POLL_SECONDS_MIN
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while True:
            try:
                result = condition()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return result
            except retry:
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS_MAX)


def wait_until(condition: Callable[[], R | None]) -> R:
    """Return the first true result of a condition, in a thread without an event loop."""
    end, pause = time.monotonic() + GIVE_UP_SECONDS, POLL_SECONDS_MIN
    while not (value := condition()):
        assert time.monotonic() < end, f"never true: {condition}"
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS_MAX)
    return value


async def loop_turns(count: int) -> None:
    """Let the other tasks of this event loop run for a number of its turns."""
    for _ in range(count):
        await asyncio.sleep(0)
