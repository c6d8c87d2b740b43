"""The verbs that write. Each is one commit; a reply has the revision of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keyhouse.errors import ConflictError, RevisionError, UsageError
from keyhouse.operations.catalog import Catalog, Fields, Protocol, ServedRecord
from keyhouse.operations.limits import SERVED_CLEAR_RECORDS
from keyhouse.operations.reads import absent, count
from keyhouse.operations.replies import (
    ClearedRecords,
    CounterValue,
    DeletedRecord,
    NewItem,
    ServedItem,
    item_of,
)
from keyhouse.operations.space import ServedSpace
from keyhouse.store import Entry, Transaction, clear, record_keys

__all__ = [
    "BatchStep",
    "Check",
    "add",
    "add_step",
    "append",
    "append_event",
    "append_step",
    "check_record",
    "clear_space",
    "create",
    "delete",
    "delete_step",
    "expected",
    "patch",
    "patch_record",
    "patch_step",
    "put",
    "put_record",
    "put_step",
]

Check = Callable[[int | None], None]
"""Raises RevisionError if a record at this revision (None: no record) must not be written."""


def expected(revision: int | None) -> Check:
    """Return the check that a record is at a revision; None: that there is none."""

    def check(found: int | None) -> None:
        if found != revision:
            raise RevisionError(
                "The record is not at the expected revision.", expected=revision, found=found
            )

    return check


async def create(
    space: ServedSpace, served: ServedRecord, fields: Fields, *, value: Any
) -> ServedItem:
    """Write a record that must not exist. `fields` are the key fields that it does not hold."""
    accepted = served.value_of(value, fields)

    async def work(tx: Transaction) -> Entry[Any]:
        return await tx.put_document(served.record, accepted, value, expect=None, **fields)

    try:
        entry, revision = await space.transact(work)
    except RevisionError as error:
        raise ConflictError("The record already exists.", key=error.fields["key"]) from None
    return item_of(served, entry, revision, NewItem)


async def put(
    space: ServedSpace,
    served: ServedRecord,
    fields: Fields,
    *,
    value: Any,
    check: Check | None = None,
    ttl: float | None = None,
) -> ServedItem:
    """Write a record. Private members that are left out stay as they are, and key fields that the
    request does not give are those of the value."""
    if len(fields) < len(served.fields):
        fields = served.with_members(fields, value, space.store.ids.new)

    async def work(tx: Transaction) -> tuple[Entry[Any], bool]:
        return await put_record(tx, served, value, fields, check=check, ttl=ttl)

    (entry, is_new), revision = await space.transact(work)
    return item_of(served, entry, revision, NewItem if is_new else ServedItem)


async def patch(
    space: ServedSpace,
    served: ServedRecord,
    fields: Fields,
    *,
    value: Any,
    check: Check | None = None,
) -> ServedItem:
    """Change some members of a record by a merge patch."""

    async def work(tx: Transaction) -> Entry[Any]:
        return await patch_record(tx, served, value, fields, check=check)

    entry, revision = await space.transact(work)
    return item_of(served, entry, revision)


async def delete(
    space: ServedSpace, served: ServedRecord, fields: Fields, *, check: Check | None = None
) -> DeletedRecord:
    """Delete a record and all that belongs to it; return whether it was there."""
    if space.store.schema.has_links:
        if not space.state.is_writable:
            await space.state.check_write()
        expect: dict[str, Any] = {}
        if check is not None:
            entry = await space.store.entry(served.record, **fields)
            check(None if entry is None else entry.revision)
            expect = {"expect": None if entry is None else entry.revision}
        deleting = space.store.delete(served.record, **expect, **fields)
        return DeletedRecord(await space.unless_newer(deleting))

    async def work(tx: Transaction) -> bool:
        await check_record(tx, served, fields, check)
        return await tx.delete(served.record, **fields)

    return DeletedRecord((await space.transact(work))[0])


async def add(
    space: ServedSpace,
    served: ServedRecord,
    fields: Fields,
    *,
    by: int,
    key: str | None = None,
    shows_value: bool = True,
) -> CounterValue:
    """Add to a counter, once for each idempotency key; return the value that this addition made.

    For that its commit depends on the value, so adds of one counter run one after the other; those
    that wait share a commit. A repeat returns the value of now. Without `shows_value`, adds do not
    depend on each other.
    """
    counter: Any = served.record
    dated = counter.address_of(fields, space.store.engine.clock.now())
    target = ("add", served.name, *map(str, fields.values()))
    if not shows_value:
        await space.once(lambda tx: tx.add(counter, by, **dated), key, *target)
        return CounterValue()
    [row] = record_keys(space.store, counter, [dated])

    async def work(tx: Transaction) -> tuple[int, int]:
        with tx.one_write():
            await tx.add(counter, by, **dated)
            return await tx.get(counter, **dated) or 0, tx.rows.revision_read(row)

    added, revision = await space.in_order(row, work, key, *target)
    if added is None or (key is not None and 0 < revision <= added[1]):  # applied before
        return await count(space, served, dated)
    return CounterValue(added[0])


async def append(
    space: ServedSpace, served: ServedRecord, fields: Fields, *, value: Any
) -> ServedItem:
    """Append an event to a log, and fold it."""
    event = served.value_of(value, fields)
    entry, revision = await space.transact(lambda tx: append_event(tx, served, event, fields))
    return item_of(served, entry, revision, NewItem)


async def clear_space(space: ServedSpace, catalog: Catalog, protocol: Protocol) -> ClearedRecords:
    """Delete some records of the space."""
    catalog.check_clear(protocol)
    if not space.state.is_writable:
        await space.state.check_write()
    async with space.large_writes:
        await space.state.check_newer()  # it deletes rows without decoding them
        deleted, done = await clear(space.store, records_max=SERVED_CLEAR_RECORDS)
    if done:
        await space.count_usage()
    return ClearedRecords(deleted, not done)


# Within a transaction


class BatchStep(NamedTuple):
    """One operation of a batch: its members by name, its record and key fields, and the check of
    the revision that it expects."""

    space: ServedSpace
    tx: Transaction
    served: ServedRecord
    fields: Fields
    operation: Any
    check: Check | None


async def put_step(step: BatchStep) -> Entry[Any]:
    _, tx, served, fields, operation, check = step
    address = served.with_members(fields, operation.value, step.space.store.ids.new)
    put = put_record(tx, served, operation.value, address, check=check, ttl=operation.ttl)
    return (await put)[0]


async def patch_step(step: BatchStep) -> Entry[Any]:
    _, tx, served, fields, operation, check = step
    ttl = operation.ttl
    return await patch_record(tx, served, operation.value, fields, check=check, ttl=ttl)


async def delete_step(step: BatchStep) -> None:
    await check_record(step.tx, step.served, step.fields, step.check)
    await step.tx.delete(step.served.record, **step.fields)


async def add_step(step: BatchStep) -> None:
    counter: Any = step.served.record
    await step.tx.add(counter, step.operation.by, **step.fields)


async def append_step(step: BatchStep) -> Entry[Any]:
    event = step.served.value_of(step.operation.value, step.fields)
    return await append_event(step.tx, step.served, event, step.fields)


async def check_record(
    tx: Transaction, served: ServedRecord, fields: Fields, check: Check | None
) -> None:
    """Raise RevisionError if a record is not at the revision that a check expects."""
    if check is not None:
        entry = await tx.entry(served.record, **fields)
        check(None if entry is None else entry.revision)


async def put_record(
    tx: Transaction,
    served: ServedRecord,
    plain: Any,
    fields: Fields,
    *,
    check: Check | None = None,
    ttl: float | None = None,
) -> tuple[Entry[Any], bool]:
    """Write a record within a transaction; return its entry, and whether it is new."""
    before = await tx.entry(served.record, **fields)
    if check is not None:
        check(None if before is None else before.revision)
    if before is not None and served.record.private and isinstance(plain, dict):
        stored = served.record.json.plain(before.record)
        members = [served.record.json.member(name) for name in served.record.private]
        plain = {name: stored[name] for name in members if name in stored} | plain
    if before is not None:
        plain = served.record.json.merge_from_row(plain, before.stored)
    value = served.value_of(plain, fields)
    return await tx.put_document(served.record, value, plain, ttl=ttl, **fields), before is None


async def patch_record(
    tx: Transaction,
    served: ServedRecord,
    patch: Any,
    fields: Fields,
    *,
    check: Check | None = None,
    ttl: float | None = None,
) -> Entry[Any]:
    """Change a record by a merge patch within a transaction."""
    before = await tx.entry(served.record, **fields)
    if check is not None:
        check(None if before is None else before.revision)
    if before is None:
        raise absent(served, fields)
    if served.may_move(patch):
        value, _ = served.record.json.patched(before.record, patch, before.stored)
        served.check_address(value, fields)
    return await tx.update(served.record, patch, ttl=ttl, **fields)


async def append_event(
    tx: Transaction, served: ServedRecord, event: Any, fields: Fields
) -> Entry[Any]:
    """Append an event within a transaction."""
    if served.order in fields:
        raise UsageError("The position of an event is assigned by the service.", field=served.order)
    return await tx.append(served.record, event, **fields)  # type: ignore[arg-type]  # it is a Log
