"""A stored row with its relations: a record's derived rows, or the records of a derived row."""

from typing import Any, Final

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import DataError, DocumentError
from keyhouse.schema import MILLISECONDS, BoundDerived, KeyMatch
from keyhouse.store import Store

__all__ = ["RelatedRow", "StoredRow", "read_stored_row", "stored_row"]

_RECORDS_MAX: Final = 20
"""Records shown for a derived row that lists many."""


class RelatedRow(msgspec.Struct, frozen=True):
    """A derived row of a record, or a record of a derived row.

    `state` is `present`, `missing`, `wrong` (a different value) or `unreadable`.
    """

    kind: str
    key: str
    state: str
    value: Any = None


class StoredRow(msgspec.Struct, frozen=True):
    """A row as stored. `neighbours` are the derived rows of a record, or the records of a derived
    row."""

    revision: int
    value_bytes: int
    expires: str | None
    seconds_left: int | None
    value: Any
    unreadable: str = ""
    neighbours: list[RelatedRow] = []


async def read_stored_row(store: Store, key: str) -> StoredRow | None:
    """Return the row at a key, with the rows related to it; None if it does not exist."""
    match, row = store.find(key), await store.row(key)
    return None if match is None or row is None else await stored_row(store, match, row)


async def stored_row(store: Store, match: KeyMatch, row: Row) -> StoredRow:
    left = None if row.expires is None else (row.expires - store.engine.clock.now()) // 1_000
    expires = None if row.expires is None else MILLISECONDS.format(row.expires)
    stored = StoredRow(row.revision, len(row.value), expires, left, None)
    try:
        if match.is_record:
            value = match.record.decode(row.value, row.key)
            related = [
                each
                for derived in match.record.derived
                for each in await _derived_rows(store, derived, value, match.values)
            ]
            return msgspec.structs.replace(
                stored, value=match.record.declared.shown(value), neighbours=related
            )
        related = await _records(store, match, row)
        return msgspec.structs.replace(
            stored, value=msgspec.json.decode(row.value), neighbours=related
        )
    except (DataError, DocumentError, msgspec.MsgspecError) as error:
        return msgspec.structs.replace(stored, unreadable=str(error))


async def _derived_rows(
    store: Store, derived: BoundDerived, value: Any, values: tuple[object, ...]
) -> list[RelatedRow]:
    expected = derived.rows(value, values)
    rows = await store.rows(list(expected)) if expected else []
    return [
        RelatedRow(derived.declared.kind, key, _state(derived, row, contribution))
        for (key, contribution), row in zip(expected.items(), rows, strict=True)
    ]


def _state(derived: BoundDerived, row: Row | None, contribution: Any) -> str:
    if row is None:
        return "missing"
    try:
        is_right = derived.strategy == "add" or derived.holds(row.value, contribution)
    except (DataError, DocumentError):
        return "unreadable"
    return "present" if is_right else "wrong"


async def _records(store: Store, match: KeyMatch, row: Row) -> list[RelatedRow]:
    """Return the records of a derived row."""
    record, derived = match.record, match.declared
    assert isinstance(derived, BoundDerived)
    keys = [
        record.template.join(values)
        for owners in derived.owners(row.key, row.value)
        for values in owners
    ][:_RECORDS_MAX]
    rows = await store.rows(keys) if keys else []
    kind = record.declared.kind
    return [
        RelatedRow(kind, key, "missing")
        if each is None
        else RelatedRow(
            record.declared.kind,
            key,
            "present",
            record.json.shown(record.decode(each.value, key)),
        )
        for key, each in zip(keys, rows, strict=True)
    ]
