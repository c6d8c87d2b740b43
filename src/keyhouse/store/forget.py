"""Forget a space: delete its rows, then every trace of them that the engine keeps.

    1. Commits of bounded size delete the rows, so that watches report them as removed.
    2. After a pause, in which watches read the log, the engine erases the rest: expired rows, the
       log of changes, batch ids, and bytes on disk.

No step needs a checkpoint: what is erased is not found again. A run that was killed is continued by
the next call, and a call on an empty space erases nothing more.
"""

import asyncio
from typing import Final

from keyhouse.engine import Batch, Engine, Span
from keyhouse.errors import ContentionError

WATCH_SECONDS: Final = 1.0
"""Time in which live watches read the deletions, also those of other processes that poll."""

_COMMIT_ROWS: Final = 500


async def forget(engine: Engine, space: str, *, watch_seconds: float = WATCH_SECONDS) -> int:
    """Erase the space; return the number of rows that were deleted.

    `watch_seconds` is the pause for watches; a watch that is slower does not report the deletion.

    Stop its writers first: raises ContentionError if it has rows again afterwards.
    """
    deleted = 0
    limit = min(_COMMIT_ROWS, engine.capabilities.commit_rows_max)
    while rows := (await engine.scan(space, Span(), limit=limit, keys_only=True)).rows:
        await engine.commit(space, Batch(deletes=tuple(row.key for row in rows)))
        deleted += len(rows)
    if deleted:
        await asyncio.sleep(watch_seconds)
    await engine.forget(space)
    if (await engine.scan(space, Span(), limit=1, keys_only=True)).rows:
        raise ContentionError(
            "The space was written while it was being forgotten: stop its writers, then repeat.",
            space=space,
        )
    return deleted
