"""Rotation of keys: seal again what older keys have sealed, so that these can be removed."""

from typing import Any

from keyhouse.arguments import checked
from keyhouse.errors import UsageError
from keyhouse.schema import Record
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.job import Progress, forget_job, run_job
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction


@checked(UsageError)
async def reseal(store: Store, /, *, on_progress: Progress | None = None) -> int:
    """Seal the members of all records of a space with the current key; return how many records were
    written.

    A job for each record type: killed at any point, the next call continues after the last
    checkpoint. Members that the current key has sealed are not written. Times and expiry stay.
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
        state = await run_job(store, name, record, _step_of(record), on_progress=on_progress)
        assert state is not None
        written += state.changed

        async def forget(tx: Transaction, name: str = name) -> None:
            await forget_job(tx, store, name)

        await store.transact(forget)
    return written


def _step_of(record: Record[Any]) -> Any:
    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        bound = tx.binding.record(record)
        stored = await tx.row(entry.key)
        if stored is None or bound.is_sealed_by_current_key(stored[0]):
            return
        fields: dict[str, Any] = dict(zip(bound.template.fields, entry.values, strict=True))
        await tx.restore(record, entry.record, expires=entry.expires, **fields)

    return step
