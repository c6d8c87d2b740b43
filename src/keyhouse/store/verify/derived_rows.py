"""The part of `verify` that finds derived rows which no record has. Building an index again deletes
them with it, so that a row stays only where a record derives it now."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    NewerError,
    SealedError,
)
from keyhouse.schema import (
    BoundDerived,
    BoundRecord,
    Derived,
    KeyMatch,
    KeyValues,
)
from keyhouse.store.reads.long_read import rows
from keyhouse.store.store import Store
from keyhouse.store.stored_keys import read_records
from keyhouse.store.verify.finding import Finding, Kind, confirmed
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import SharedRowChange


async def delete_dangling(store: Store, declared: Iterable[Derived]) -> None:
    """Delete the contributions to these derived rows that no record makes, and rows that do not
    decode. Counts are left: they are counted again."""
    # the next record of a First row is that of an index, whose rows have to be right
    for derived in sorted(declared, key=lambda each: each.needs_others):
        bound = store.binding.derived(derived)
        if bound.strategy == "add":
            continue
        async for row in rows(store.engine, store.space, bound.template.span({})):
            match = store.find(row.key)
            if match is not None and match.declared is bound:
                async for finding in check_derived(store, match, row, repair=True):
                    if finding.kind == "unreadable":
                        await delete_if_unreadable(store, finding)


async def delete_if_unreadable(store: Store, finding: Finding) -> Finding:
    """Delete the row of a finding if it is still unreadable: its owner may have written it
    again."""
    key, match = finding.key, store.find(finding.key)

    async def delete(tx: Transaction) -> None:
        written = await tx.row(key)
        error = None if match is None or written is None else unreadable(match, key, written[0])
        if written is not None and (match is None or (error and kind_of(error) == "unreadable")):
            tx.write(key, None)

    await store.transact(delete)
    return msgspec.structs.replace(finding, repaired=True)


async def check_derived(
    store: Store, match: KeyMatch, row: Row, *, repair: bool
) -> AsyncIterator[Finding]:
    """Yield a finding for a row that does not decode, and for each contribution in it that no
    record makes; `repair` removes these."""
    record, derived = match.record, match.declared
    assert isinstance(derived, BoundDerived)
    if (reason := unreadable(match, row.key, row.value)) is not None:
        now = await store.row(row.key)
        if now is not None and now.revision == row.revision:
            yield Finding(kind_of(reason), row.key, record.name, str(reason))
        return  # else it has been written again, by its owner or by the repair of a record
    owners = derived.owners(row.key, row.value)
    keys = [record.template.join(values) for candidates in owners for values in candidates]
    stored = iter(await read_records(store.engine, store.space, record, keys))
    for candidates in owners:
        derives = [
            _derives(record, derived, row.key, next(stored), values) for values in candidates
        ]
        if not any(derives) and (
            finding := await confirmed(store, _dangling, match, candidates, row, repair=repair)
        ):
            yield finding


async def _dangling(
    tx: Transaction, match: KeyMatch, candidates: list[KeyValues], seen: Row, *, repair: bool
) -> Finding | None:
    """Report a row, or a member of it, that none of the records has that could have it."""
    record, derived, key = match.record, match.declared, seen.key
    assert isinstance(derived, BoundDerived)
    there = await tx.row(key)
    if there is None or candidates not in derived.owners(key, there[0]):
        return None  # it was deleted, or another record has written it
    owners = [record.template.join(values) for values in candidates]
    for owner, values in zip(owners, candidates, strict=True):
        if await is_derived(tx, record, derived, key, values, owner):
            return None
    detail = f"{' or '.join(owners)} should not have it"
    removed = derived.stored_contribution(there[0], candidates[0])
    try:
        if derived.strategy == "merge":
            derived.merge(key, there[0], removed, None)
    except NewerError as error:
        return Finding("newer", key, record.name, str(error))
    if repair and derived.strategy == "put":
        tx.write(key, None)
    elif repair:
        await tx.merge(
            SharedRowChange(record, derived, key, candidates[0], removed, None, there[1])
        )
    return Finding("dangling", key, record.name, detail, repair)


async def is_derived(
    tx: Transaction,
    record: BoundRecord[Any],
    derived: BoundDerived,
    key: str,
    values: KeyValues,
    owner: str,
) -> bool:
    """Return whether the record with these key values, at the key `owner`, has the derived row."""
    written = await tx.row(await tx.records.stored_key(record, owner))
    row = None if written is None else Row(owner, written[0], 0)
    return _derives(record, derived, key, row, values)


def kind_of(error: KeyhouseError) -> Kind:
    """Return the kind of the finding that a row does not decode."""
    if isinstance(error, NewerError):
        return "newer"
    return "sealed" if isinstance(error, SealedError) else "unreadable"


def unreadable(match: KeyMatch, key: str, value: bytes) -> KeyhouseError | None:
    """Return the reason why a row does not decode, or None if it does."""
    try:
        if isinstance(match.declared, BoundRecord):
            read = match.record.decode(value, key)
            match.record.is_live(read, key, 0)
            for derived in match.record.derived:
                derived.rows(read, match.values)
        else:
            for candidates in match.declared.owners(key, value):
                for values in candidates:
                    match.record.template.join(values)
    except (DataError, DocumentError, KeyFieldError) as error:
        return error
    return None


def _derives(
    record: BoundRecord[Any], derived: BoundDerived, key: str, owner: Row | None, values: KeyValues
) -> bool:
    """Return whether a stored record has the derived row. One that is unreadable is a separate
    finding: it is taken to have it."""
    if owner is None:
        return False
    try:
        return key in derived.rows(record.decode(owner.value, owner.key), values)
    except (DataError, KeyFieldError):
        return True
