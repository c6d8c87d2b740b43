"""Entries of a summary made from its records, where another program left a list without entries,
something else, or nothing at all.

The records are read without a check: each write of one also writes the summary's row, which the
transaction checks. A record that is absent or unreadable has no entry; one of newer code has the
entry that the summary makes of its JSON, if it does.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from keyhouse.engine import Engine, Put
from keyhouse.errors import DataError, KeyFieldError, NewerError
from keyhouse.schema import Keys, Record, Summary
from keyhouse.store.reads.pagination import pages
from keyhouse.store.reads.record_reader import read_records

_READ_KEYS: Final = 250

Found = AsyncIterator[tuple[str, Keys, bytes]]
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
    if row is None or derived.rebuilt:
        found = _all_records(engine, space, bound, derived, key, writes)
    else:
        found = _listed_records(engine, space, bound, derived, key, row, writes)
    entries: dict[str, object] = {}
    async for owner, values, value in found:
        with suppress(DataError, KeyFieldError):
            try:
                contribution = derived.rows(bound.decode(value, owner), values).get(key)
            except NewerError:
                contribution = derived.newer_contribution(value, values)
            if contribution is not None:
                member, entry = contribution
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
    """Iterate over the records whose key begins with the fields of the summary's key."""
    given = derived.template.parse(key) or {}
    fields: dict[str, Any] = {}
    for name in bound.template.fields:
        if name not in given:
            break
        fields[name] = given[name]
    span = bound.template.span(fields)
    split = bound.template.split
    async for page in pages(engine, space, span):
        for row in page.rows:
            if row.key not in writes and (values := split(row.key)):
                yield row.key, values, row.value
    for each, put in writes.items():
        if put and each in span and (values := split(each)):
            yield each, values, put.value


async def _listed_records(
    engine: Engine,
    space: str,
    bound: Record[Any],
    derived: Summary,
    key: str,
    row: bytes,
    writes: Mapping[str, Put | None],
) -> Found:
    """Iterate over the records that a plain list names."""
    owners: dict[str, Keys] = {}
    for [values] in derived.owners(key, row):
        with suppress(KeyFieldError):
            owners[bound.template.join(values)] = values
    for owner, values in owners.items():
        if (put := writes.get(owner)) is not None:
            yield owner, values, put.value
    unread = [owner for owner in owners if owner not in writes]
    for at in range(0, len(unread), _READ_KEYS):
        keys = unread[at : at + _READ_KEYS]
        for each in await read_records(engine, space, bound, keys):
            if each is not None:
                yield each.key, owners[each.key], each.value
