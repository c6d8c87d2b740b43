"""Forget a space: delete its rows, then every trace of them that the engine keeps.

    1. A commit writes the mark: a lease at `FORGET_KEY`. From then on stores that write the space
       raise PreparingError.
    2. Commits of bounded size delete the rows, so that watches report them as removed. Each renews
       the mark, and checks that it is still that of this run.
    3. After a pause, in which watches read the log, the engine erases the rest: expired rows, the
       log of changes, batch ids, and bytes on disk; last of all the mark.

No step needs a checkpoint: what is erased is not found again. A run that was killed is continued by
the next call, at once, and by `resume_interrupted`, which a running service calls, when its lease
has expired. A call on an empty space erases nothing more.

A schema whose own keys include `FORGET_KEY` has no mark: there the caller repeats the call.
"""

import asyncio
from functools import lru_cache
from typing import Final

from keyhouse.engine import Batch, Engine, Span
from keyhouse.errors import ContentionError
from keyhouse.schema import Schema
from keyhouse.store.jobs.lease import LEASE_MS, SpaceLease, lease_until

WATCH_SECONDS: Final = 1.0
"""Time in which live watches read the deletions, also those of other processes that poll."""

FORGET_KEY: Final = "keyhouse-forget"
"""The key of the mark."""

ERASURE_MS: Final = 60_000
"""The lease while the engine erases, which renews nothing: rows written later must not be erased by
a second runner."""

_COMMIT_ROWS: Final = 500


async def forget(
    engine: Engine, space: str, *, watch_seconds: float = WATCH_SECONDS, marked: bool = True
) -> int:
    """Erase the space; return the number of rows that were deleted.

    `watch_seconds` is the pause for watches; a watch that is slower does not report the deletion.
    `marked` is false for a space whose own keys include `FORGET_KEY`.

    Stop its writers first: raises ContentionError if it has rows again afterwards, and LeaseError
    if another call has taken over.
    """
    mark = SpaceLease(engine, space, FORGET_KEY)
    if marked:
        await mark.claim(by_force=True)
    return await _erase(mark, watch_seconds)


async def resume_forget(
    engine: Engine, space: str, *, watch_seconds: float = WATCH_SECONDS
) -> tuple[bool, int | None]:
    """Continue a run that was interrupted: return whether there was one.

    If its lease holds, nothing is done, and the second result is the time when it expires.
    """
    mark = SpaceLease(engine, space, FORGET_KEY)
    row = await mark.row()
    if row is None:
        return False, None
    if lease_until(row) > engine.clock.now():
        return False, lease_until(row)
    if not await mark.claim_after(row):
        return False, engine.clock.now() + LEASE_MS  # another runner was first
    await _erase(mark, watch_seconds)
    return True, None


@lru_cache(1_000)
def has_mark(schema: Schema) -> bool:
    """Return whether spaces of the schema can have the mark: it declares no key like it."""
    return schema.find(FORGET_KEY) is None


async def _erase(mark: SpaceLease, watch_seconds: float) -> int:
    """Erase a space with its mark, if that is held."""
    engine, space = mark.engine, mark.space
    deleted = 0
    limit = max(1, min(_COMMIT_ROWS, engine.capabilities.commit_rows_max - mark.rows))
    while keys := await _keys(mark, limit):
        await mark.commit(Batch(deletes=tuple(keys)))
        deleted += len(keys)
    if deleted:
        await asyncio.sleep(watch_seconds)
    mark.milliseconds = ERASURE_MS
    if mark.rows:
        await mark.commit(Batch())
    await engine.forget(space, last=FORGET_KEY if mark.rows else None)
    if (await engine.scan(space, Span(), limit=1, keys_only=True)).rows:
        raise ContentionError(
            "The space was written while it was being forgotten: stop its writers, then repeat.",
            space=space,
        )
    return deleted


async def _keys(mark: SpaceLease, limit: int) -> list[str]:
    """Return the first keys of a space, without that of its mark."""
    page = await mark.engine.scan(mark.space, Span(), limit=limit + 1, keys_only=True)
    return [row.key for row in page.rows if not (mark.rows and row.key == mark.key)][:limit]
