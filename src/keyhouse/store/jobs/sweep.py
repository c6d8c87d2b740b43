"""The sweep deletes expired rows, which are invisible already, a few at a time."""

import asyncio
from collections.abc import Callable
from typing import Final

from keyhouse.advice.arguments import checked
from keyhouse.engine import Engine
from keyhouse.errors import UsageError

CHUNK_ROWS: Final = 5_000
"""Rows of one step. An engine splits it further, so that concurrent writes are not delayed."""


@checked(UsageError)
async def sweep(
    engine: Engine,
    *,
    rows_max: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Delete expired rows of all spaces and return how many: all of them, or up to `rows_max`.

    Works in bounded chunks and lets other tasks run between two.
    """
    swept = 0
    while True:
        limit = CHUNK_ROWS if rows_max is None else min(CHUNK_ROWS, rows_max - swept)
        deleted = await engine.sweep(limit=limit)
        swept += deleted
        if on_progress is not None:
            on_progress(swept)
        if deleted < limit or (rows_max is not None and swept >= rows_max):
            return swept
        await asyncio.sleep(0)
