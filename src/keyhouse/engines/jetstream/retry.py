"""Retries while the server is unavailable: an election or a restart takes a few seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from keyhouse.errors import UnavailableError

TIMEOUT_SECONDS: Final = 4.0
"""Time that calls are retried before the error reaches the caller."""

RETRY_SECONDS: Final = 0.05

Result = TypeVar("Result")


async def until_available(call: Callable[[], Awaitable[Result]]) -> Result:
    """Retry `call` while it raises UnavailableError, which means that nothing was done."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return await call()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)
