"""Reads for the merge of a row that several records share, where its stored value does not suffice.

- A Summary gets its entries from its records (`entries_of_records`) if another program left a list
  without entries, something else, or nothing at all. The records are read without a check: each
  write of one also writes the summary's row, which the transaction checks. A record that is absent
  or unreadable has no entry; one of newer code has the entry that the summary makes of its JSON, if
  it does.
- A First whose holder leaves is held by the first of the other records (`successor_of`).
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from keyhouse.engine import Span
from keyhouse.errors import DataError, KeyFieldError, NewerError
from keyhouse.schema import BoundFirst, BoundRecord, BoundSummary, KeyValues
from keyhouse.store.reads.long_read import pages
from keyhouse.store.stored_keys import read_records
from keyhouse.store.writes.row_buffer import RowBuffer

_READ_KEYS: Final = 250

Records = AsyncIterator[tuple[str, KeyValues, bytes]]
"""Key, key values and value of each record."""


async def entries_of_records(
    rows: RowBuffer, bound: BoundRecord[Any], summary: BoundSummary, key: str, row: bytes | None
) -> dict[str, object]:
    """Return the members of a summary row with their entries, as the transaction sees them."""
    if row is None or summary.rebuilt:
        records = _all_records(rows, bound, summary, key)
    else:
        records = _listed_records(rows, bound, summary, key, row)
    entries: dict[str, object] = {}
    async for owner, values, value in records:
        with suppress(DataError, KeyFieldError):
            try:
                contribution = summary.rows(bound.decode(value, owner), values).get(key)
            except NewerError:
                contribution = summary.newer_contribution(value, values)
            if contribution is not None:
                member, entry = contribution
                entries[member] = entry
    return entries


async def _all_records(
    rows: RowBuffer, bound: BoundRecord[Any], summary: BoundSummary, key: str
) -> Records:
    """Iterate over the records whose key begins with the fields of the summary's key."""
    given = summary.template.parse(key) or {}
    fields: dict[str, Any] = {}
    for name in bound.template.fields:
        if name not in given:
            break
        fields[name] = given[name]
    span = bound.template.span(fields)
    split = bound.template.split
    async for page in pages(rows.engine, rows.space, span):
        for row in page.rows:
            if row.key not in rows.writes and (values := split(row.key)):
                yield row.key, values, row.value
    for owner, put in rows.writes.items():
        if put and owner in span and (values := split(owner)):
            yield owner, values, put.value


async def _listed_records(
    rows: RowBuffer, bound: BoundRecord[Any], summary: BoundSummary, key: str, row: bytes
) -> Records:
    """Iterate over the records that a plain list names."""
    owners: dict[str, KeyValues] = {}
    for [values] in summary.owners(key, row):
        with suppress(KeyFieldError):
            owners[bound.template.join(values)] = values
    for owner, values in owners.items():
        if (put := rows.writes.get(owner)) is not None:
            yield owner, values, put.value
    unread = [owner for owner in owners if owner not in rows.writes]
    for at in range(0, len(unread), _READ_KEYS):
        keys = unread[at : at + _READ_KEYS]
        for record in await read_records(rows.engine, rows.space, bound, keys):
            if record is not None:
                yield record.key, owners[record.key], record.value


async def successor_of(
    rows: RowBuffer, first: BoundFirst, key: str, leaving: bytes
) -> bytes | None:
    """Return the value of a First row whose holder leaves: the first of the other records in
    `among`, or None."""
    values = first.template.parse(key)
    assert values is not None
    span = first.among.template.span(values)
    buffered = sorted(
        (put.key, successor)
        for put in rows.writes.values()
        if put is not None
        and put.key in span
        and (successor := first.successor(put.key, put.value)) != leaving
    )
    stored = await _stored_successor(rows, first, span, leaving)
    return min([*buffered[:1], *stored], default=("", None))[1]


async def _stored_successor(
    rows: RowBuffer, first: BoundFirst, span: Span, leaving: bytes
) -> list[tuple[str, bytes]]:
    async for page in pages(rows.engine, rows.space, span):
        for row in page.rows:
            successor = first.successor(row.key, row.value)
            if successor != leaving and await rows.row(row.key) is not None:
                return [(row.key, successor)]
    return []
