"""Reads of records by key, for all callers."""

from collections.abc import Sequence
from typing import Any, TypeVar

from keyhouse.engine import Engine, Row
from keyhouse.errors import DataError
from keyhouse.schema import BoundRecord
from keyhouse.store.entry import Entry, live_entry
from keyhouse.store.reads.long_read import LongRead, one_page_bytes
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRows
from keyhouse.store.stored_keys import read_records

T = TypeVar("T")


async def _read_many(
    engine: Engine, space: str, bound: BoundRecord[Any], keys: Sequence[str]
) -> list[Row | None]:
    return await read_records(engine, space, bound, keys, one_page_bytes(len(keys)))


async def record_entries(
    engine: Engine,
    space: str,
    bound: BoundRecord[T],
    keys: Sequence[str],
    on_unreadable: OnUnreadable,
    step: LongRead | None = None,
) -> list[Entry[T] | None]:
    """Return the entries of the records at these keys, in their order; None where there is
    none, and where the row is unreadable, unless that raises. With `step`, those of the first keys
    alone, as many as it allows; the other rows are not decoded."""
    unreadable, now = UnreadableRows(on_unreadable), engine.clock.now()
    split, entries = bound.template.split, list[Entry[T] | None]()
    if step is None:
        rows = await _read_many(engine, space, bound, keys)
    else:
        rows = await read_records(engine, space, bound, keys[: step.rows], step.bytes_max)
        rows = rows[: step.fit([0 if row is None else len(row.value) for row in rows])]
    for key, row in zip(keys, rows, strict=step is None):
        entry: Entry[T] | None = None
        if row is not None:
            try:
                values = split(key)
                assert values is not None, "the template has built the key"
                entry = live_entry(bound, row, values, now)
            except DataError as error:
                unreadable.add(row, error)
        entries.append(entry)
    return entries


async def record_values(
    engine: Engine,
    space: str,
    bound: BoundRecord[T],
    keys: Sequence[str],
    absent: Any,
    on_unreadable: OnUnreadable,
) -> list[T | None]:
    """Return the records at these keys, in their order; `absent` where there is none, and
    None where the row is unreadable, unless that raises."""
    unreadable, now = UnreadableRows(on_unreadable), engine.clock.now()
    values: list[T | None] = []
    for row in await _read_many(engine, space, bound, keys):
        value: T | None = absent
        if row is not None:
            try:
                read = bound.decode(row.value, row.key)
                value = read if bound.is_live(read, row.key, now) else None
            except DataError as error:
                unreadable.add(row, error)
                value = None
        values.append(value)
    return values
