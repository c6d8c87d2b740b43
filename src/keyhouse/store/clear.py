"""Clear a space: delete every record of a store's schema in it, and every row derived from them.

The store's own rows (version, migrations, jobs) stay, so the space is as a new one of this version.
Records are deleted in groups that share a commit, each with all of its rows. An interrupted run has
deleted some records completely and the others not at all; the next call continues.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

from keyhouse.engine import Batch, Check, Row
from keyhouse.errors import ContentionError, DataError, LimitError
from keyhouse.schema import KeyMatch, Record
from keyhouse.store.long_read import PAGE_BYTES, LongWork
from keyhouse.store.removal import Linked
from keyhouse.store.transaction import Transaction

_GROUP_RECORDS: Final = 50
"""Records deleted in one commit, where it can hold them."""

_PASSES_MAX: Final = 10

Found = tuple[Row, KeyMatch]
Progress = Callable[[int], None]


async def clear(
    store: Linked, on_progress: Progress | None = None, *, records_max: int | None = None
) -> tuple[int, bool]:
    """Delete the records of a store, or about the first `records_max`; return their number, and
    whether none is left. `on_progress` is called with the number so far.

    Links between records are not looked at, since all go. Raises ContentionError if records are
    written as fast as they are deleted.
    """
    report = on_progress or (lambda _: None)
    deleted = 0
    for _ in range(_PASSES_MAX):
        found = 0
        async with aclosing(_groups(store)) as groups:
            async for group in groups:
                found += len(group)
                deleted += await _delete(store, [each for each in group if _is_record(each)])
                report(deleted)
                if records_max is not None and deleted >= records_max:
                    return deleted, False
        if not found:
            return deleted, True
        await _delete_rows(store)
    raise ContentionError(
        "The space is still being written: stop its writers, then clear it again.",
        space=store.space,
    )


async def _groups(store: Linked) -> AsyncGenerator[list[Found], None]:
    """Yield the rows of the schema, without those that the store keeps about itself."""
    meta = store.binding.schema.meta
    own = {id(store.binding.record(record)) for record in (meta.records if meta else ())}
    group: list[Found] = []
    size = 0
    async with aclosing(store.row_scan()) as rows:
        async for row in rows:
            match = store.binding.find(row.key)
            if match is None or id(match.record) in own:
                continue
            group.append((row, match))
            size += len(row.value)
            if len(group) == _GROUP_RECORDS or size >= PAGE_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group


def _is_record(found: Found) -> bool:
    return isinstance(found[1].declared, Record)


async def _delete(store: Linked, group: list[Found]) -> int:
    """Delete records in one commit; in halves, if that is too large or one does not decode."""

    async def work(tx: Transaction) -> int:
        await tx.prefetch([row.key for row, _ in group])
        deleted = 0
        long_work = LongWork(store.space)
        for _, match in group:
            await long_work.turn()
            record: Record[Any] = store.binding.original(match.record)
            fields: dict[str, Any] = match.fields
            deleted += await tx.delete_alone(record, **fields)
        return deleted

    try:
        return await store.transact(work) if group else 0
    except (LimitError, DataError) as error:
        if len(group) > 1:
            half = len(group) // 2
            return await _delete(store, group[:half]) + await _delete(store, group[half:])
        if isinstance(error, DataError):
            await _delete_unchanged(store, [group[0][0]])
            return 1
        raise


async def _delete_rows(store: Linked) -> None:
    """Delete the rows that no record has any more: counts, and rows of unreadable records."""
    limit = min(_GROUP_RECORDS, store.engine.capabilities.commit_rows_max)
    async for group in _groups(store):
        derived = [row for row, match in group if not isinstance(match.declared, Record)]
        for start in range(0, len(derived), limit):
            await _delete_unchanged(store, derived[start : start + limit])


async def _delete_unchanged(store: Linked, group: list[Row]) -> None:
    """Delete rows if none has changed; else the next pass finds them again."""
    checks = tuple([Check(row.key, row.revision) for row in group])
    deletes = tuple([row.key for row in group])
    await store.engine.commit(store.space, Batch(checks, deletes=deletes))
