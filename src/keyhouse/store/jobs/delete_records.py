"""Delete many records, in groups that share a commit, each with all of its rows.

An interrupted run has deleted some records completely and the others not at all; the next call
continues. `clear` deletes the records of a store's schema; `bulk_delete` those of a span, and whole
spaces.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

from keyhouse.engine import Batch, Check, Engine, Row
from keyhouse.errors import ContentionError, DataError, LimitError
from keyhouse.schema import BoundSchema, KeyMatch, Record
from keyhouse.store.entry import ANY
from keyhouse.store.jobs.cascade_delete import cascade_delete
from keyhouse.store.jobs.chunk import grouped, in_halves
from keyhouse.store.jobs.store_like import StoreLike
from keyhouse.store.writes.transaction import Transaction

GROUP_RECORDS: Final = 50
"""Records deleted in one commit, where it can hold them."""

LONG_STEP_SECONDS: Final = 0.001
"""Time after which other tasks run, before the next record of a group."""

PASSES_MAX: Final = 10
"""Passes over a space, each of which finds the records that were written during the last."""

Progress = Callable[[int], None]


class RecordKey(NamedTuple):
    key: str
    record: Record[Any]
    fields: dict[str, Any]


async def delete_group(
    store: StoreLike,
    group: list[RecordKey],
    delete_unreadable: Callable[[str], Awaitable[int]],
    *,
    linked: bool,
) -> int:
    """Delete records in one commit; in halves, if that is too large or one does not decode.

    `linked`: also all that belongs to them; raises LinkError if others refer to them.
    """

    async def delete(some: Sequence[RecordKey]) -> int:
        try:
            return await store.transact(partial(_delete_each, some, linked))
        except DataError:
            if len(some) > 1:
                raise
            return await delete_unreadable(some[0].key)
        except LimitError:
            [_, record, fields], *others = some
            if others or not linked or not _has_dependents(store.binding, record):
                raise
            return await cascade_delete(store, record, ANY, fields)

    return await in_halves(group, delete, DataError, LimitError)


async def _delete_each(group: Sequence[RecordKey], linked: bool, tx: Transaction) -> int:
    await tx.rows.read([each.key for each in group])
    delete = tx.delete if linked else tx.delete_alone
    deleted, started = 0, perf_counter()
    for _, record, fields in group:
        if perf_counter() - started > LONG_STEP_SECONDS:
            await asyncio.sleep(0)  # let other tasks run: nothing else here waits
            started = perf_counter()
        deleted += await delete(record, **fields)
    return deleted


def _has_dependents(binding: BoundSchema, record: Record[Any]) -> bool:
    return binding.has_links and bool(binding.links(binding.record(record)).dependents)


async def delete_rows(engine: Engine, space: str, rows: AsyncGenerator[Row, None]) -> bool:
    """Delete rows as they are; return whether there were any. A group of which one has changed
    stays: the next pass finds it again."""
    is_found = False
    limit = min(GROUP_RECORDS, engine.capabilities.commit_rows_max)
    async for group in grouped(rows, limit):
        is_found = True
        await delete_unchanged(engine, space, group)
    return is_found


async def delete_unchanged(engine: Engine, space: str, rows: Iterable[Row | None]) -> None:
    """Delete rows if none has changed."""
    group = [row for row in rows if row is not None]
    if group:
        checks = tuple([Check(row.key, row.revision) for row in group])
        await engine.commit(space, Batch(checks, deletes=tuple([row.key for row in group])))


def still_written(space: str) -> ContentionError:
    return ContentionError(
        "The space is still being written: stop its writers, then repeat.", space=space
    )


async def clear(
    store: StoreLike, on_progress: Progress | None = None, *, records_max: int | None = None
) -> tuple[int, bool]:
    """Delete the records of a store, or about the first `records_max`; return their number, and
    whether none is left. `on_progress` is called with the number so far.

    The store's own rows (version, migrations, jobs) stay, so the space is as a new one of this
    version. Links between records are not looked at, since all go. Raises ContentionError if
    records are written as fast as they are deleted, and NewerError if newer code has migrated the
    space.
    """
    await store.guard.check_newer()  # here, since rows are deleted that were not decoded
    report = on_progress or (lambda _: None)
    deleted = 0

    async def delete_unreadable(key: str) -> int:
        await delete_unchanged(
            store.engine, store.space, await store.engine.read(store.space, [key])
        )
        return 1

    for _ in range(PASSES_MAX):
        is_found = False
        groups = grouped(_rows(store), GROUP_RECORDS, lambda each: len(each[0].value))
        async with aclosing(groups):
            async for group in groups:
                is_found = True
                records = [
                    RecordKey(row.key, match.record.declared, match.fields)
                    for row, match in group
                    if match.is_record
                ]
                deleted += await delete_group(store, records, delete_unreadable, linked=False)
                report(deleted)
                if records_max is not None and deleted >= records_max:
                    return deleted, False
        if not is_found:
            return deleted, True
        # rows that no record has any more: counts, and rows of unreadable records
        derived = (row async for row, match in _rows(store) if not match.is_record)
        await delete_rows(store.engine, store.space, derived)
    raise still_written(store.space)


async def _rows(store: StoreLike) -> AsyncGenerator[tuple[Row, KeyMatch], None]:
    """Yield the rows of the schema, without those that the store keeps about itself."""
    meta = store.binding.schema.meta
    own = () if meta is None else meta.records
    async with aclosing(store.row_scan()) as rows:
        async for row in rows:
            match = store.binding.find(row.key)
            if match is not None and match.record.declared not in own:
                yield row, match
