"""Sealed members: whether a space has some, and the job that seals them with the current key, after
a rotation of keys, or where they were written in clear."""

from typing import Any

from keyhouse.advice.arguments import checked
from keyhouse.errors import UsageError
from keyhouse.schema import BoundRecord, Record, Schema
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.job import Progress, Step, forget_job, run_job
from keyhouse.store.sealer import is_sealed
from keyhouse.store.store import Store
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import stored_rows


@checked(UsageError)
async def has_sealed(store: Store, /) -> bool:
    """Return whether a record of a space has a sealed member. The store needs no key ring."""
    for record in store.schema.records:
        if record.sealed:
            members = store.binding.record(record).json.sealed_members
            async for _, row in store.record_rows(record):
                if is_sealed(row.value, members):
                    return True
    return False


@checked(UsageError)
async def reseal(
    store: Store, /, *, before: Schema | None = None, on_progress: Progress | None = None
) -> int:
    """Seal the members of all records of a space with the current key; return how many rows were
    written.

    `before`: the schema by which the space was written, where other members were sealed, or none;
    rows that only it derives, which may hold a member in clear, are replaced. A job for each record
    type: killed at any point, the next call continues after the last checkpoint. Members that the
    current key has sealed are not written. Times and expiry stay.
    """
    if store.key_ring is None:
        raise UsageError("To seal again, open the store with its key ring.")
    if store.schema.meta is None:
        raise UsageError(
            "A job needs the schema's `meta` rows: pass meta=Meta().", schema=store.schema.name
        )
    written = 0
    for record in store.schema.records:
        if not record.sealed:
            continue
        name = f"reseal:{record.name}:{store.key_ring.current}"
        step = _step_of(record, _former(store, before, record))
        state = await run_job(store, name, record, step, on_progress=on_progress)
        assert state is not None
        written += state.changed

        async def forget(tx: Transaction, name: str = name) -> None:
            await forget_job(tx, store, name)

        await store.transact(forget)
    return written


def _former(store: Store, before: Schema | None, record: Record[Any]) -> BoundRecord[Any] | None:
    """Return the record as another schema declares it, in the space of the store."""
    if before is None:
        return None
    bound = before.bind(store.binding.values)
    return next((bound.record(each) for each in before.records if each.name == record.name), None)


def _step_of(record: Record[Any], former: BoundRecord[Any] | None) -> Step[Any]:
    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        bound = tx.binding.record(record)
        stored = await tx.row(entry.key)
        if stored is None or bound.is_sealed_by_current_key(stored[0]):
            return
        if former is not None:
            for key in _derived_keys(former, entry) - _derived_keys(bound, entry):
                tx.write(key, None)
            await tx.rewrite(record, entry)
        fields: dict[str, Any] = dict(zip(bound.template.fields, entry.values, strict=True))
        await tx.restore(record, entry.record, expires=entry.expires, **fields)

    return step


def _derived_keys(bound: BoundRecord[Any], entry: Entry[Any]) -> set[str]:
    return {key for derived in bound.derived for key in stored_rows(derived, entry)}
