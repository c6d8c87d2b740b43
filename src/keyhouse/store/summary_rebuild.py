"""Entries of a summary made from its records, where another program left a list without entries, or
none at all.

The records are read without a check: each write of one also writes the summary's row, which the
transaction checks. A record that is absent or unreadable has no entry.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from keyhouse.engine import Engine, Put
from keyhouse.errors import DataError, KeyFieldError
from keyhouse.schema import Keys, Record, Summary
from keyhouse.store.pagination import pages
from keyhouse.store.record_reader import read_records

_READ_KEYS: Final = 250

Found = list[tuple[str, Keys, bytes]]
"""Key, key values and value of each record."""


async def rebuilt_entries(
    engine: Engine,
    space: str,
    bound: Record[Any],
    derived: Summary,
    key: str,
    row: bytes | None,
    writes: Mapping[str, Put | None],
) -> dict[str, object]:
    """Return the members of a summary row with their entries, as the transaction's `writes` leave
    them."""
    if row is None:
        found = await _all_records(engine, space, bound, derived, key, writes)
    else:
        found = await _listed_records(engine, space, bound, derived, key, row, writes)
    entries: dict[str, object] = {}
    for owner, values, value in found:
        with suppress(DataError, KeyFieldError):
            contributions = derived.rows(bound.decode(value, owner), values)
            if key in contributions:
                member, entry = contributions[key]
                entries[member] = entry
    return entries


async def _all_records(
    engine: Engine,
    space: str,
    bound: Record[Any],
    derived: Summary,
    key: str,
    writes: Mapping[str, Put | None],
) -> Found:
    """Return the records whose key begins with the fields of the summary's key."""
    given = derived.template.parse(key) or {}
    fields: dict[str, Any] = {}
    for name in bound.template.fields:
        if name not in given:
            break
        fields[name] = given[name]
    span = bound.template.span(fields)
    values = {each: put.value for each, put in writes.items() if put and each in span}
    async for page in pages(engine, space, span):
        values |= {row.key: row.value for row in page.rows if row.key not in writes}
    split = bound.template.split
    return [(each, keys, values[each]) for each in sorted(values) if (keys := split(each))]


async def _listed_records(
    engine: Engine,
    space: str,
    bound: Record[Any],
    derived: Summary,
    key: str,
    row: bytes,
    writes: Mapping[str, Put | None],
) -> Found:
    """Return the records that a plain list names."""
    owners: dict[str, Keys] = {}
    for [values] in derived.owners(key, row):
        with suppress(KeyFieldError):
            owners[bound.template.join(values)] = values
    stored = {owner: put.value for owner in owners if (put := writes.get(owner)) is not None}
    unread = [owner for owner in owners if owner not in writes]
    for at in range(0, len(unread), _READ_KEYS):
        keys = unread[at : at + _READ_KEYS]
        rows = await read_records(engine, space, bound, keys)
        stored |= {each: row.value for each, row in zip(keys, rows, strict=True) if row is not None}
    return [(owner, values, stored[owner]) for owner, values in owners.items() if owner in stored]
