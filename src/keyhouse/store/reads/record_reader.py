"""Reads of records by key, for all callers: a record that has legacy keys is found at either of its
keys."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from keyhouse.engine import Engine, Row
from keyhouse.errors import DataError
from keyhouse.schema import Record
from keyhouse.store.entry import Entry
from keyhouse.store.reads.long_read import LongRead, after_read, before_read
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")


LEGACY_TOGETHER_MAX: Final = 4
"""Records that are read at once by a read of limited size, if each may be at either of two keys."""


async def read_records(
    engine: Engine,
    space: str,
    bound: Record[Any],
    keys: Sequence[str],
    bytes_max: int | None = None,
) -> list[Row | None]:
    """Return the rows of the records at these current keys, in their order; None where there is
    none. With `bytes_max`, those of the first keys, as `Engine.read` returns them.

    The rows of one read are not of one moment, and a record moves in one direction only, from its
    legacy key to its current one. So a record that was found at neither key is looked up once more
    at its current key.
    """
    if bound.legacy is None or not keys:
        if bytes_max is None or len(keys) < 2:
            return await engine.read(space, keys) if keys else []
        return await engine.read(space, keys, bytes_max=bytes_max)
    if bytes_max is not None:
        keys = keys[:LEGACY_TOGETHER_MAX]
    count = len(keys)
    rows = await engine.read(space, [*map(bound.legacy_key, keys), *keys])
    found = [current or legacy for legacy, current in zip(rows[:count], rows[count:], strict=True)]
    if missing := [at for at, row in enumerate(found) if row is None]:
        again = await engine.read(space, [keys[at] for at in missing])
        for at, row in zip(missing, again, strict=True):
            found[at] = row
    return found


async def _read_many(
    engine: Engine, space: str, bound: Record[Any], keys: Sequence[str]
) -> list[Row | None]:
    await before_read(space, len(keys))
    rows = await read_records(engine, space, bound, keys)
    after_read(rows)
    return rows


async def record_entries(
    engine: Engine,
    space: str,
    bound: Record[T],
    keys: Sequence[str],
    on_unreadable: OnUnreadable,
    step: LongRead | None = None,
) -> list[Entry[T] | None]:
    """Return the entries of the records at these current keys, in their order; None where there is
    none, and where the row is unreadable, unless that raises. With `step`, those of the first keys
    alone, as many as it allows; the other rows are not decoded."""
    unreadable, now = UnreadableRows(on_unreadable), engine.clock.now()
    names, entries = bound.template.fields, list[Entry[T] | None]()
    decode, split, keeps = bound.decode, bound.template.split, bound.keeps_unknown
    expires_by_field = bound.expires_by_field
    if step is None:
        rows = await _read_many(engine, space, bound, keys)
    else:
        rows = await read_records(engine, space, bound, keys[: step.rows], step.bytes_max)
        rows = rows[: step.keep([0 if row is None else len(row.value) for row in rows])]
    for key, row in zip(keys, rows, strict=step is None):
        entry: Entry[T] | None = None
        if row is not None:
            try:
                value = decode(row.value, row.key)
                if not expires_by_field or bound.is_live(value, row.key, now):
                    values = split(key)
                    assert values is not None, "the template has built the key"
                    stored = row.value if keeps else None
                    entry = Entry(value, row.key, values, row.revision, row.expires, names, stored)
            except DataError as error:
                unreadable.add(row, error)
        entries.append(entry)
    return entries


async def record_values(
    engine: Engine,
    space: str,
    bound: Record[T],
    keys: Sequence[str],
    absent: Any,
    on_unreadable: OnUnreadable,
) -> list[T | None]:
    """Return the records at these current keys, in their order; `absent` where there is none, and
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
