"""A batch: operations of one space that are applied all or not at all."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse.advice.rejected_members import rejected_in
from keyhouse.errors import KeyhouseError, LimitError, RecordError, UsageError
from keyhouse.operations.catalog import Catalog, Kind, Protocol, ServedRecord
from keyhouse.operations.limits import SERVED_BATCH_OPERATIONS_MAX
from keyhouse.operations.record_verbs import RECORD_VERBS
from keyhouse.operations.replies import ServedItem, item_of
from keyhouse.operations.space import ServedSpace
from keyhouse.operations.writes import BatchStep, check_record, expected
from keyhouse.scheduling.work_turns import LongWork
from keyhouse.store import Entry, Transaction

__all__ = [
    "BatchOperation",
    "EncodedBatch",
    "SchemaBatch",
    "SchemaBatchReply",
    "example_batch",
    "run_batch",
]

LARGE_BATCH_OPERATIONS: Final = 50
"""Operations above which batches of one space are applied one after the other: side by side, most
would lose the race for their records, and start again."""

CHECK: Final = "check"
"""The operation that writes nothing: it only expects a record at a revision."""

_VERBS: Final = {verb.name: verb for verb in RECORD_VERBS if verb.batch is not None}
_OPS: Final = (*_VERBS, CHECK)


class BatchOperation(msgspec.Struct, forbid_unknown_fields=True):
    """One operation. `fields` is the address; of a log, the fields that the event does not hold.

    `expect` is the revision that the record must be at (null: it must not exist); `check` only
    expects. `ttl` is in seconds, where the record allows it.
    """

    op: Literal[_OPS]  # type: ignore[valid-type]  # made of the table
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


def example_batch(catalog: Catalog) -> dict[str, Any]:
    """Return a batch of operations on a counter and a record of the schema, if there are such."""
    kinds: dict[Kind, dict[str, Any]] = {
        "counter": {"op": "add", "by": 1},
        "record": {"op": "delete"},
    }
    operations: list[dict[str, Any]] = []
    for kind, members in kinds.items():
        writable = [each for each in catalog.all("http", kind) if each.is_writable]
        operations += [
            {**members, kind: served.name, "fields": served.example_fields()}
            for served in writable[:1]
        ]
    return {"operations": operations}


Step = tuple[ServedRecord, Entry[Any]] | None

_decode = msgspec.json.Decoder(BatchOperation).decode


async def run_batch(
    space: ServedSpace,
    catalog: Catalog,
    protocol: Protocol,
    *,
    operations: Sequence[msgspec.Raw],
    key: str | None = None,
) -> SchemaBatchReply:
    """Apply the operations in order, in one commit. An error has the index of its operation."""
    if len(operations) > SERVED_BATCH_OPERATIONS_MAX:
        raise LimitError("Too many operations in a batch.", limit=SERVED_BATCH_OPERATIONS_MAX)
    space.report_read(len(operations), 0)
    async with space.large_writes if len(operations) > LARGE_BATCH_OPERATIONS else nullcontext():
        return await _run(space, catalog, operations, protocol, key)


async def _run(
    space: ServedSpace,
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
    verb = _VERBS.get(operation.op)
    [kind] = ("record",) if verb is None else verb.kinds
    names = {name: getattr(operation, name) for name in ("record", "counter", "log")}
    given = [name for name, value in names.items() if value is not UNSET]
    if given != [kind]:
        raise UsageError("An operation names what it works on.", op=operation.op, needs=kind)
    needed = () if verb is None else verb.required
    for name in ("value", "by"):
        if (getattr(operation, name) is UNSET) is (name in needed):
            problem = "needs this member" if name in needed else "does not take this member"
            raise UsageError(f"The operation {problem}.", op=operation.op, member=name)
    if operation.expect is not UNSET and kind != "record":
        raise UsageError("Only a record is expected at a revision.", op=operation.op)
    if operation.expect is UNSET and verb is None:
        raise UsageError("The operation needs this member.", op=CHECK, member="expect")
    if operation.ttl is not None and not (verb is not None and verb.batch_takes_ttl):
        raise UsageError("The operation does not take this member.", op=operation.op, member="ttl")
    return catalog.find(protocol, names[kind], kind, write=verb is not None)


async def _apply(
    space: ServedSpace, tx: Transaction, served: ServedRecord, operation: BatchOperation
) -> Step:
    fields = served.of_json(operation.fields)
    expect: Any = operation.expect
    check = None if expect is UNSET else expected(expect)
    verb = _VERBS.get(operation.op)
    if verb is None:
        await check_record(tx, served, fields, check)
        return None
    assert verb.batch is not None, "it is in the table for it"
    entry = await verb.batch(BatchStep(space, tx, served, fields, operation, check))
    return None if entry is None else (served, entry)
