"""Forget a space: delete its rows, then every trace of them that the engine keeps.

    1. A commit writes the mark: a row at `FORGET_KEY`, with a lease. From then on stores that write
       the space raise PreparingError.
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

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, Row, Span
from keyhouse.errors import ContentionError, LeaseError
from keyhouse.schema import Schema

WATCH_SECONDS: Final = 1.0
"""Time in which live watches read the deletions, also those of other processes that poll."""

FORGET_KEY: Final = "keyhouse-forget"
"""The key of the mark."""

_COMMIT_ROWS: Final = 500
_CLAIMS_MAX: Final = 20
_LEASE_MS: Final = 60_000


class ForgetMark(msgspec.Struct, frozen=True):
    """The value of the mark: another runner may continue after `lease_until` (milliseconds)."""

    lease_until: int


async def forget(
    engine: Engine, space: str, *, watch_seconds: float = WATCH_SECONDS, marked: bool = True
) -> int:
    """Erase the space; return the number of rows that were deleted.

    `watch_seconds` is the pause for watches; a watch that is slower does not report the deletion.
    `marked` is false for a space whose own keys include `FORGET_KEY`.

    Stop its writers first: raises ContentionError if it has rows again afterwards, and LeaseError
    if another call has taken over.
    """
    revision = await _claim(engine, space) if marked else None
    return await _erase(engine, space, revision, watch_seconds)


async def resume_forget(
    engine: Engine, space: str, *, watch_seconds: float = WATCH_SECONDS
) -> tuple[bool, int | None]:
    """Continue a run that was interrupted: return whether there was one.

    If its lease holds, nothing is done, and the second result is the time when it expires.
    """
    [row] = await engine.read(space, [FORGET_KEY])
    if row is None:
        return False, None
    lease_until = _lease_of(row)
    if lease_until > engine.clock.now():
        return False, lease_until
    renewed = Batch(checks=(Check(FORGET_KEY, row.revision),), puts=(_mark(engine),))
    revision = await engine.commit(space, renewed)
    if revision is None:
        return False, engine.clock.now() + _LEASE_MS  # another runner was first
    await _erase(engine, space, revision, watch_seconds)
    return True, None


@lru_cache(1_000)
def has_mark(schema: Schema) -> bool:
    """Return whether spaces of the schema can have the mark: it declares no key like it."""
    return schema.find(FORGET_KEY) is None


async def _claim(engine: Engine, space: str) -> int | None:
    """Write the mark, also in place of another runner's, and return its revision; None for an empty
    space."""
    for _ in range(_CLAIMS_MAX):
        if not (await engine.scan(space, Span(), limit=1, keys_only=True)).rows:
            return None
        [row] = await engine.read(space, [FORGET_KEY])
        check = Check(FORGET_KEY, None if row is None else row.revision)
        revision = await engine.commit(space, Batch(checks=(check,), puts=(_mark(engine),)))
        if revision is not None:
            return revision
    raise ContentionError("Other calls forget this space at the same time.", space=space)


async def _erase(engine: Engine, space: str, revision: int | None, watch_seconds: float) -> int:
    """Erase a space whose mark has this revision, or that has none."""
    deleted = 0
    marked = revision is not None
    limit = max(1, min(_COMMIT_ROWS, engine.capabilities.commit_rows_max - marked))
    while keys := await _keys(engine, space, limit, FORGET_KEY if marked else None):
        checks = (Check(FORGET_KEY, revision),) if marked else ()
        puts = (_mark(engine),) if marked else ()
        committed = await engine.commit(space, Batch(checks, puts, tuple(keys)))
        if committed is None:
            raise _taken_over(space)
        revision = committed if marked else None
        deleted += len(keys)
    if deleted:
        await asyncio.sleep(watch_seconds)
    if marked:
        [row] = await engine.read(space, [FORGET_KEY])
        if row is None or row.revision != revision:
            raise _taken_over(space)
    await engine.forget(space, last=FORGET_KEY if marked else None)
    if (await engine.scan(space, Span(), limit=1, keys_only=True)).rows:
        raise ContentionError(
            "The space was written while it was being forgotten: stop its writers, then repeat.",
            space=space,
        )
    return deleted


async def _keys(engine: Engine, space: str, limit: int, mark: str | None) -> list[str]:
    """Return the first keys of a space, without that of its mark."""
    page = await engine.scan(space, Span(), limit=limit + 1, keys_only=True)
    return [row.key for row in page.rows if row.key != mark][:limit]


def _mark(engine: Engine) -> Put:
    value = msgspec.json.encode(ForgetMark(engine.clock.now() + _LEASE_MS))
    return Put(FORGET_KEY, value)


def _lease_of(row: Row) -> int:
    """Return when a mark's lease expires: at once, if another program has written the row."""
    try:
        return msgspec.json.decode(row.value, type=ForgetMark).lease_until
    except msgspec.DecodeError:
        return 0


def _taken_over(space: str) -> LeaseError:
    return LeaseError("Another call has taken over to forget this space.", space=space)
