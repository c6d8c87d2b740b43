"""What is stored at a key: the row, its record without private members, and the rows that belong with it. Reads only."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from keyhouse import Store, open_engine
from keyhouse.engine import Row
from keyhouse.errors import DataError, DocumentError
from keyhouse.schema import MILLISECONDS, Derived, KeyMatch, Record, Schema
from keyhouse.schema.description import kind_of

_RECORDS_MAX = 20
"""Records shown of a row that lists many."""


class Neighbour(msgspec.Struct, frozen=True):
    """A row that belongs with this one. `state`: `there`, `missing`, `wrong` (it says something else) or `unreadable`."""

    kind: str
    key: str
    state: str
    value: Any = None


class Stored(msgspec.Struct, frozen=True):
    """A row as it is stored now. `neighbours`: the derived rows of a record, or the records of a derived row."""

    revision: int
    value_bytes: int
    expires: str | None
    seconds_left: int | None
    value: Any
    unreadable: str = ""
    neighbours: list[Neighbour] = []


def read_stored(
    schema: Schema, url: str, space: str, key: str, fixed: Mapping[str, Any]
) -> Stored | None:
    """The row, or `None` when there is none, or none any more."""
    return asyncio.run(_read(schema, url, space, key, fixed))


async def _read(
    schema: Schema, url: str, space: str, key: str, fixed: Mapping[str, Any]
) -> Stored | None:
    engine = await open_engine(url, create=False)
    try:
        store = Store(schema, engine, space, **fixed)
        found, row = store.find(key), await store.row(key)
        return None if found is None or row is None else await _stored(store, found, row)
    finally:
        await engine.close()


async def _stored(store: Store, found: KeyMatch, row: Row) -> Stored:
    left = None if row.expires is None else (row.expires - store.engine.clock.now()) // 1_000
    expires = None if row.expires is None else MILLISECONDS.format(row.expires)
    stored = Stored(row.revision, len(row.value), expires, left, None)
    try:
        if isinstance(found.declared, Record):
            value = found.record.decode(row.value, row.key)
            neighbours = [
                n
                for derived in found.record.derived
                for n in await _earned(store, derived, value, found.values)
            ]
            return msgspec.structs.replace(
                stored, value=found.record.shown(value), neighbours=neighbours
            )
        neighbours = await _records(store, found, row)
        return msgspec.structs.replace(
            stored, value=msgspec.json.decode(row.value), neighbours=neighbours
        )
    except (DataError, DocumentError, msgspec.MsgspecError) as error:
        return msgspec.structs.replace(stored, unreadable=str(error))


async def _earned(
    store: Store, derived: Derived, value: Any, values: tuple[object, ...]
) -> list[Neighbour]:
    """The rows that the record earns, and whether they are there."""
    earned = derived.rows(value, values)
    rows = await store.engine.read(store.space, list(earned)) if earned else []
    return [
        Neighbour(kind_of(derived), key, _state(derived, row, contribution))
        for (key, contribution), row in zip(earned.items(), rows, strict=True)
    ]


def _state(derived: Derived, row: Row | None, contribution: Any) -> str:
    if row is None:
        return "missing"
    try:
        return (
            "there"
            if derived.strategy == "add" or derived.holds(row.value, contribution)
            else "wrong"
        )
    except (DataError, DocumentError):
        return "unreadable"


async def _records(store: Store, found: KeyMatch, row: Row) -> list[Neighbour]:
    """The records that a derived row leads to, those that are there."""
    record: Record[Any] = found.record
    keys = [
        record.template.join(values)
        for owners in found.declared.owners(row.key, row.value)
        for values in owners
    ][:_RECORDS_MAX]
    rows = await store.engine.read(store.space, keys) if keys else []
    return [
        Neighbour(kind_of(record), key, "missing")
        if there is None
        else Neighbour(kind_of(record), key, "there", record.shown(record.decode(there.value, key)))
        for key, there in zip(keys, rows, strict=True)
    ]
