"""The part of `verify` that completes lists which were full once and have room again.

A full list takes no more members and is marked as truncated. When members leave, it is not known
which records it lacks, so the mark stays until all records are read, here:

1. Read the lists, then all records.
2. If fewer records belong to a list than it may have members, add those that it lacks, each together
   with a check of its record. Start again.
3. If it lacks none, remove the mark, provided that the list is still the one of step 1. A record
   that was created meanwhile would have changed it, since a list with room takes every new member.
"""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

from keyhouse.errors import DataError, KeyFieldError
from keyhouse.schema import KeyMatch, Keys, Record, Summary
from keyhouse.store.finding import Finding, confirmed
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

_ROUNDS_MAX: Final = 3
_COMMIT_RECORDS: Final = 50
"""Records that one commit checks: it must fit into a DynamoDB transaction."""

Owners = dict[str, tuple[str, Keys]]
"""Members of a list, each with the key of one of its records and that key's values."""


def has_room(derived: object, value: bytes) -> bool:
    """Tell whether a derived row is a truncated list that could have further members."""
    try:
        return isinstance(derived, Summary) and derived.has_room(value)
    except DataError:
        return False  # unreadable, which is a separate finding


async def refill_lists(store: Store, lists: Mapping[str, KeyMatch]) -> AsyncIterator[Finding]:
    """Complete truncated lists, given by key; yield a finding for each that is complete."""
    left = dict(lists)
    for _ in range(_ROUNDS_MAX):
        seen = {key: await store.row(key) for key in left}
        owners = await _owners(store, left)
        for key, match in list(left.items()):
            row, listed = seen[key], owners[key]
            if row is None or not match.declared.has_room(row.value, len(listed)):
                del left[key]
                continue
            members = match.declared.members(row.value)
            missing = [owner for member, owner in listed.items() if member not in members]
            for at in range(0, len(missing), _COMMIT_RECORDS):
                some = missing[at : at + _COMMIT_RECORDS]
                await store.transact(partial(_add, match, key, some))
            if not missing:
                work = partial(_remove_mark, match, key, row.value, len(listed))
                if (finding := await confirmed(store, work)) is not None:
                    del left[key]
                    yield finding
        if not left:
            return


async def _owners(store: Store, lists: Mapping[str, KeyMatch]) -> dict[str, Owners]:
    """Read all records, and return those that belong to each list, one for each member; no more
    than tell that there are too many."""
    owners: dict[str, Owners] = {key: {} for key in lists}
    derived = {id(match.declared): match.declared for match in lists.values()}
    if not lists:
        return owners
    async for row in store.row_scan():
        found = store.find(row.key)
        if found is None or not isinstance(found.declared, Record):
            continue
        for each in found.record.derived:
            if id(each) in derived:
                for key, (member, _) in _rows(each, found, row.key, row.value).items():
                    if key in owners and len(owners[key]) <= (each.members_max or 0):
                        owners[key].setdefault(member, (row.key, found.values))
    return owners


def _rows(derived: Summary, found: KeyMatch, key: str, value: bytes) -> dict[str, Any]:
    try:
        return derived.rows(found.record.decode(value, key), found.values)
    except (DataError, KeyFieldError):
        return {}  # unreadable, which is a separate finding


async def _add(match: KeyMatch, key: str, owners: list[tuple[str, Keys]], tx: Transaction) -> None:
    record, derived = match.record, match.declared
    for owner, values in owners:
        written = await tx.row(await tx.stored_key(record, record.current_key(owner)))
        if written is None:
            continue
        rows = _rows(derived, KeyMatch(record, record, values), owner, written[0])
        if key in rows:
            await tx.merge(record, derived, key, values, None, rows[key], written[1])


async def _remove_mark(
    match: KeyMatch, key: str, seen: bytes, count: int, tx: Transaction
) -> Finding | None:
    there = await tx.row(key)
    if there is None or there[0] != seen:
        return None
    complete = match.declared.without_mark(seen)
    tx.write(key, None if complete is None else (complete, there[1]))
    detail = f"was truncated, and lists all its members again: {count:,}"
    return Finding("wrong", key, match.record.name, detail, True)
