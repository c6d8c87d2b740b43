"""Waiting for a server that is not there now: a new leader is chosen within seconds, a restart takes about as long."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from keyhouse.errors import UnavailableError

TIMEOUT_SECONDS: Final = 4.0
"""How long it is waited for, before the caller is told."""

RETRY_SECONDS: Final = 0.05

Result = TypeVar("Result")


async def until_available(call: Callable[[], Awaitable[Result]]) -> Result:
    """Call again while the answer is that nothing was done because nobody was there."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return await call()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)
