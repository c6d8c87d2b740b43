"""Delete many records, in groups that share a commit, each with all of its rows.

An interrupted run has deleted some records completely and the others not at all; the next call
continues. `clear` deletes the records of a store's schema; `bulk_delete` those of a span, and whole
spaces.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from keyhouse.engine import Batch, Check, Engine, Row
from keyhouse.errors import ContentionError, DataError, LimitError
from keyhouse.schema import KeyMatch, Record
from keyhouse.store.entry import ANY
from keyhouse.store.jobs.removal import Linked, delete_with_owned
from keyhouse.store.reads.long_read import PAGE_BYTES, LongWork
from keyhouse.store.transaction import Transaction

GROUP_RECORDS: Final = 50
"""Records deleted in one commit, where it can hold them."""

PASSES_MAX: Final = 10
"""Passes over a space, each of which finds the records that were written during the last."""

Progress = Callable[[int], None]


class RecordKey(NamedTuple):
    key: str
    record: Record[Any]
    fields: dict[str, Any]


async def delete_group(
    store: Linked,
    group: list[RecordKey],
    delete_unreadable: Callable[[str], Awaitable[int]],
    *,
    linked: bool,
) -> int:
    """Delete records in one commit; in halves, if that is too large or one does not decode.

    `linked`: also all that belongs to them; raises LinkError if others refer to them.
    """

    async def work(tx: Transaction) -> int:
        await tx.rows.read([each.key for each in group])
        delete = tx.delete if linked else tx.delete_alone
        deleted = 0
        long_work = LongWork(store.space)
        for _, record, fields in group:
            await long_work.turn()
            deleted += await delete(record, **fields)
        return deleted

    try:
        return await store.transact(work) if group else 0
    except (LimitError, DataError) as error:
        if len(group) > 1:
            half = len(group) // 2
            return await delete_group(
                store, group[:half], delete_unreadable, linked=linked
            ) + await delete_group(store, group[half:], delete_unreadable, linked=linked)
        [(key, record, fields)] = group
        if isinstance(error, DataError):
            return await delete_unreadable(key)
        binding = store.binding
        if linked and binding.has_links and binding.links(binding.record(record)).dependents:
            return await delete_with_owned(store, record, ANY, fields)
        raise


async def delete_unchanged(engine: Engine, space: str, rows: Iterable[Row | None]) -> None:
    """Delete rows if none has changed; else the next pass finds them again."""
    group = [row for row in rows if row is not None]
    if group:
        checks = tuple([Check(row.key, row.revision) for row in group])
        await engine.commit(space, Batch(checks, deletes=tuple([row.key for row in group])))


def still_written(space: str) -> ContentionError:
    return ContentionError(
        "The space is still being written: stop its writers, then repeat.", space=space
    )


async def clear(
    store: Linked, on_progress: Progress | None = None, *, records_max: int | None = None
) -> tuple[int, bool]:
    """Delete the records of a store, or about the first `records_max`; return their number, and
    whether none is left. `on_progress` is called with the number so far.

    The store's own rows (version, migrations, jobs) stay, so the space is as a new one of this
    version. Links between records are not looked at, since all go. Raises ContentionError if
    records are written as fast as they are deleted.
    """
    report = on_progress or (lambda _: None)
    deleted = 0

    async def delete_unreadable(key: str) -> int:
        await delete_unchanged(
            store.engine, store.space, await store.engine.read(store.space, [key])
        )
        return 1

    for _ in range(PASSES_MAX):
        found = 0
        async with aclosing(_groups(store)) as groups:
            async for group in groups:
                found += len(group)
                records = [
                    RecordKey(row.key, store.binding.original(match.record), match.fields)
                    for row, match in group
                    if isinstance(match.declared, Record)
                ]
                deleted += await delete_group(store, records, delete_unreadable, linked=False)
                report(deleted)
                if records_max is not None and deleted >= records_max:
                    return deleted, False
        if not found:
            return deleted, True
        await _delete_rows(store)
    raise still_written(store.space)


async def _groups(store: Linked) -> AsyncGenerator[list[tuple[Row, KeyMatch]], None]:
    """Yield the rows of the schema, without those that the store keeps about itself."""
    meta = store.binding.schema.meta
    own = {id(store.binding.record(record)) for record in (meta.records if meta else ())}
    group: list[tuple[Row, KeyMatch]] = []
    size = 0
    async with aclosing(store.row_scan()) as rows:
        async for row in rows:
            match = store.binding.find(row.key)
            if match is None or id(match.record) in own:
                continue
            group.append((row, match))
            size += len(row.value)
            if len(group) == GROUP_RECORDS or size >= PAGE_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group


async def _delete_rows(store: Linked) -> None:
    """Delete the rows that no record has any more: counts, and rows of unreadable records."""
    limit = min(GROUP_RECORDS, store.engine.capabilities.commit_rows_max)
    async for group in _groups(store):
        derived = [row for row, match in group if not isinstance(match.declared, Record)]
        for start in range(0, len(derived), limit):
            await delete_unchanged(store.engine, store.space, derived[start : start + limit])
