"""Conversion of a space between two prefixes of one schema (`Schema.under`), or to or from none.

A prefix stands in front of every key and in no value, so each row is moved as it is: one commit
puts some rows at their new keys and deletes the old ones, with both checked. A run that was killed
is continued by the next one, which finds what is left; a finished one finds nothing. Programs that
use the space must be stopped first: each of them knows one of the two prefixes.

One runner works at a time: it holds a lease, a row at `CONVERSION_KEY` that every commit renews and
checks, and that the last one deletes. It belongs to neither prefix, so it is not moved itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, Row, Span, check_key, check_limits
from keyhouse.errors import ContentionError, KeyhouseError, LimitError, UsageError
from keyhouse.schema import Schema
from keyhouse.store.jobs.chunk import in_halves
from keyhouse.store.jobs.lease import SpaceLease

CONVERSION_KEY: Final = "keyhouse-convert"
"""The key of the lease."""

_COMMIT_ROWS = 100
_ATTEMPTS_MAX = 20


class PrefixConversion(msgspec.Struct):
    """`moved` rows have new keys. `conflicts` are keys that were left, because their new key has
    another row."""

    moved: int = 0
    conflicts: list[str] = []


async def convert_prefix(
    engine: Engine,
    space: str,
    source: Schema,
    target: Schema,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> PrefixConversion:
    """Move all rows of a space from the keys of one schema to those of another one.

    The two are one schema with and without a prefix, or with two. Rows of other keys are left.
    Repeat a call that was interrupted: it continues. Raises LeaseError while another runner works.
    """
    if target.name != source.name or target.prefix == source.prefix:
        raise UsageError(
            "A conversion is between two prefixes of one schema.",
            source=f"{source.name} {source.prefix!r}",
            target=f"{target.name} {target.prefix!r}",
        )
    lease = SpaceLease(engine, space, CONVERSION_KEY, to=target.text_before(space))
    if source.find(CONVERSION_KEY) is None and target.find(CONVERSION_KEY) is None:
        await lease.claim()
    try:
        result = await _convert(lease, source, target, on_progress)
    except (Exception, asyncio.CancelledError):
        with suppress(KeyhouseError):
            await lease.release()
        raise
    await lease.release()
    return result


async def _convert(
    lease: SpaceLease,
    source: Schema,
    target: Schema,
    on_progress: Callable[[int], None] | None,
) -> PrefixConversion:
    engine, space = lease.engine, lease.space
    old, new = source.text_before(space), target.text_before(space)
    result = PrefixConversion()
    span: Span | None = Span.prefix(old)
    while span is not None:
        page = await engine.scan(space, span, limit=_COMMIT_ROWS)
        rows = [
            row
            for row in page.rows
            if source.find(row.key) is not None
            and not (len(new) > len(old) and row.key.startswith(new))
        ]
        await _move(lease, (len(old), new), rows, result)
        if on_progress is not None:
            on_progress(result.moved)
        span = span.after(page.rows[-1].key) if page.more else None
    return result


async def _move(
    lease: SpaceLease, change: tuple[int, str], rows: list[Row], result: PrefixConversion
) -> None:
    """Move rows in commits that the engine can hold. The rows of a commit that loses a race are
    read again."""
    engine, space = lease.engine, lease.space

    async def move(group: Sequence[Row]) -> int:
        for _ in range(_ATTEMPTS_MAX):
            if await _commit(lease, change, group, result):
                return len(group)
            current = await engine.read(space, [row.key for row in group])
            group = [row for row in current if row is not None]
        raise ContentionError(
            "The space is still being written: stop its writers first.", space=space
        )

    most = max(1, min(_COMMIT_ROWS, (engine.capabilities.commit_rows_max - lease.rows) // 2))
    for at in range(0, len(rows), most):
        await in_halves(rows[at : at + most], move, LimitError)


async def _commit(
    lease: SpaceLease, change: tuple[int, str], rows: Sequence[Row], result: PrefixConversion
) -> bool:
    engine, space = lease.engine, lease.space
    size, new = change
    keys = [new + row.key[size:] for row in rows]
    for key in keys:
        check_key(key)
    there = await engine.read(space, keys) if keys else []
    puts, deletes, checks, conflicts = [], [], [], []
    for row, key, stored in zip(rows, keys, there, strict=True):
        if stored is not None and (stored.value, stored.expires) != (row.value, row.expires):
            conflicts.append(row.key)
            continue
        checks += [
            Check(row.key, row.revision),
            Check(key, None if stored is None else stored.revision),
        ]
        puts.append(Put(key, row.value, row.expires))
        deletes.append(row.key)
    if puts:
        batch = Batch(tuple(checks), tuple(puts), tuple(deletes))
        check_limits(batch, engine.capabilities)
        if not await lease.commit(batch):
            return False
    result.moved += len(puts)
    result.conflicts += conflicts
    return True
