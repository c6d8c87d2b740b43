"""A batch: operations of one space that are applied all or not at all."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse.errors import KeyhouseError, LimitError, RecordError, RevisionError, UsageError
from keyhouse.read_meter import report_read
from keyhouse.schema.rejected_members import rejected_in
from keyhouse.service.limits import SERVED_BATCH_OPERATIONS_MAX
from keyhouse.service.schema_service.answers import ServedItem, item_of
from keyhouse.service.schema_service.catalog import Catalog, Kind, Protocol, ServedRecord
from keyhouse.service.schema_service.operations import SpaceOperations, patch_in, put_in
from keyhouse.store import Entry, Transaction
from keyhouse.store.reads.long_read import LongWork

__all__ = [
    "BatchOperation",
    "EncodedBatch",
    "SchemaBatch",
    "SchemaBatchReply",
    "run_batch",
]

LARGE_BATCH_OPERATIONS: Final = 50
"""Operations above which batches of one space are applied one after the other: side by side, most
would lose the race for their records, and start again."""

_KINDS: dict[str, Kind] = {
    "put": "record",
    "patch": "record",
    "delete": "record",
    "check": "record",
    "add": "counter",
    "append": "log",
}


class BatchOperation(msgspec.Struct, forbid_unknown_fields=True):
    """One operation. `fields` is the address; of a log, the fields that the event does not hold.

    `expect` is the revision that the record must be at (null: it must not exist); `check` only
    expects. `ttl` is in seconds, where the record allows it.
    """

    op: Literal["put", "patch", "delete", "add", "append", "check"]
    record: str | UnsetType = UNSET
    counter: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    fields: dict[str, Any] = {}
    value: Any = UNSET
    by: int | UnsetType = UNSET
    expect: int | UnsetType | None = UNSET
    ttl: float | None = None


class SchemaBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Operations that are applied all or not at all."""

    operations: Annotated[list[BatchOperation], Meta(max_length=SERVED_BATCH_OPERATIONS_MAX)]


class EncodedBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch as it is received. `run_batch` decodes its operations: an error has their index."""

    operations: Annotated[list[msgspec.Raw], Meta(max_length=SERVED_BATCH_OPERATIONS_MAX)]


class SchemaBatchReply(msgspec.Struct):
    """The revision of the commit, and the item of each operation; null for those that have none.
    A repeat of a batch, by its idempotency key, has the revision of the first and no items."""

    revision: int
    items: list[ServedItem | None] | UnsetType = UNSET


Step = tuple[ServedRecord, Entry[Any]] | None

_decode = msgspec.json.Decoder(BatchOperation).decode


async def run_batch(
    space: SpaceOperations,
    catalog: Catalog,
    operations: Sequence[msgspec.Raw],
    *,
    protocol: Protocol,
    key: str | None = None,
) -> SchemaBatchReply:
    """Apply the operations in order, in one commit. An error has the index of its operation."""
    if len(operations) > SERVED_BATCH_OPERATIONS_MAX:
        raise LimitError("Too many operations in a batch.", limit=SERVED_BATCH_OPERATIONS_MAX)
    report_read(len(operations), 0)
    async with space.large_writes if len(operations) > LARGE_BATCH_OPERATIONS else nullcontext():
        return await _run(space, catalog, operations, protocol, key)


async def _run(
    space: SpaceOperations,
    catalog: Catalog,
    encoded: Sequence[msgspec.Raw],
    protocol: Protocol,
    key: str | None,
) -> SchemaBatchReply:
    long_work = LongWork(space.store.space)
    operations: list[BatchOperation] = []
    served: list[ServedRecord] = []
    for at, each in enumerate(encoded):
        await long_work.turn()
        try:
            operations.append(_decoded(each))
            served.append(_find(catalog, protocol, operations[-1]))
        except KeyhouseError as error:
            error.fields["operation"] = at
            raise

    async def work(tx: Transaction) -> list[Step]:
        steps: list[Step] = []
        for at, (target, operation) in enumerate(zip(served, operations, strict=True)):
            await long_work.turn()
            try:
                steps.append(await _apply(space, tx, target, operation))
            except KeyhouseError as error:
                error.fields["operation"] = at
                raise
        return steps

    steps, revision = await space.once(work, key, "batch")
    if steps is None:
        return SchemaBatchReply(revision)
    items: list[ServedItem | None] = []
    for step in steps:
        await long_work.turn()
        items.append(None if step is None else item_of(*step, revision))
    return SchemaBatchReply(revision, items)


def _decoded(encoded: msgspec.Raw) -> BatchOperation:
    try:
        return _decode(encoded)
    except msgspec.ValidationError as error:
        rejected = rejected_in(BatchOperation, encoded)
        raise RecordError(
            "The operation does not have the members of one.", reason=str(error), **rejected
        ) from None


def _find(catalog: Catalog, protocol: Protocol, operation: BatchOperation) -> ServedRecord:
    kind = _KINDS[operation.op]
    names = {name: getattr(operation, name) for name in ("record", "counter", "log")}
    given = [name for name, value in names.items() if value is not UNSET]
    if given != [kind]:
        raise UsageError("An operation names what it works on.", op=operation.op, needs=kind)
    needed = {"put": "value", "patch": "value", "append": "value", "add": "by"}.get(operation.op)
    for name in ("value", "by"):
        if (getattr(operation, name) is UNSET) is (name == needed):
            problem = "needs this member" if name == needed else "does not take this member"
            raise UsageError(f"The operation {problem}.", op=operation.op, member=name)
    if operation.expect is not UNSET and kind != "record":
        raise UsageError("Only a record is expected at a revision.", op=operation.op)
    if operation.expect is UNSET and operation.op == "check":
        raise UsageError("The operation needs this member.", op="check", member="expect")
    if operation.ttl is not None and operation.op not in ("put", "patch"):
        raise UsageError("The operation does not take this member.", op=operation.op, member="ttl")
    return catalog.find(protocol, names[kind], kind, write=operation.op != "check")


async def _apply(
    space: SpaceOperations, tx: Transaction, served: ServedRecord, operation: BatchOperation
) -> Step:
    fields = served.of_json(operation.fields)
    value: Any = operation.value
    check = None if operation.expect is UNSET else partial(_check_expected, operation.expect)
    if operation.op == "put":
        address = served.with_members(fields, value, space.store.ids.new)
        put = put_in(tx, served, value, address, check=check, ttl=operation.ttl)
        return served, (await put)[0]
    if operation.op == "patch":
        return served, await patch_in(tx, served, value, fields, check=check, ttl=operation.ttl)
    if operation.op == "append":
        event = served.value_of(value, fields)
        return served, await space.append_in(tx, served, event, fields)
    if operation.op == "add":
        by: Any = operation.by
        await tx.add(served.record, by, **fields)  # type: ignore[arg-type]  # it is a Counter
        return None
    if check is not None:
        found = await tx.entry(served.record, **fields)
        check(None if found is None else found.revision)
    if operation.op == "delete":
        await tx.delete(served.record, **fields)
    return None


def _check_expected(expected: int | None, found: int | None) -> None:
    if found != expected:
        raise RevisionError(
            "The record is not at the expected revision.", expected=expected, found=found
        )
