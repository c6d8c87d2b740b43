"""The sweep deletes expired rows, which are invisible already, a few at a time."""

import asyncio
from collections.abc import Callable

from keyhouse.arguments import checked
from keyhouse.engine import Engine
from keyhouse.errors import UsageError

_CHUNK_ROWS = 5_000
"""Rows of one step. An engine splits it further, so that concurrent writes are not delayed."""


@checked(UsageError)
async def sweep(
    engine: Engine,
    *,
    chunk_rows: int = _CHUNK_ROWS,
    rows_max: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Delete expired rows of all spaces and return how many: all of them, or at least `rows_max`.

    Works in bounded chunks and lets other tasks run between two.
    """
    swept = 0
    while True:
        deleted = await engine.sweep(limit=chunk_rows)
        swept += deleted
        if on_progress is not None:
            on_progress(swept)
        if deleted < chunk_rows or (rows_max is not None and swept >= rows_max):
            return swept
        await asyncio.sleep(0)
