"""The document's key migration: moves every row of a customer from its v1 key to its v2 key.

Three passes over each category, each a resumable job: copy rows that have no copy, compare every
copy, then delete rows with an equal copy. Keys are parsed and built by templates. A copy keeps the
times and the expiry of its original. Running it again changes nothing. It is safe while customers
write: a record at its v2 key is never older than at its v1 key, because every write at v2 deletes
the v1 row in the same commit.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError
from keyhouse.schema import Record
from keyhouse.store import Entry, Store, Transaction, forget_job, run_job, try_job
from keyhouse.systems.streamkit.schema import NOTE, RECORDS, SCHEMAS

__all__ = ["MigratedCustomer", "customer_ids", "migrate_keys"]

PHASES: Final = ("copy", "verify", "delete")

Progress = Callable[[str, str, int], None]
"""Called with the customer, the phase with its category, and the number of rows processed."""


class MigratedCustomer(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one customer. `conflicts` are v1 keys that were left, because v2 differs or is
    absent."""

    customer: str
    copied: int = 0
    verified: int = 0
    deleted: int = 0
    conflicts: tuple[str, ...] = ()


async def customer_ids(engine: Engine) -> AsyncIterator[str]:
    """Iterate over the spaces that are customers."""
    async for space in engine.spaces():
        try:
            SCHEMAS[0].space.bound(space)
            NOTE.template.check({"customer": space})
        except KeyFieldError:
            continue
        yield space


async def migrate_keys(
    engine: Engine, customer: str, *, dry_run: bool = False, on_progress: Progress | None = None
) -> MigratedCustomer:
    """Move all rows of one customer to v2 keys. `dry_run`: count what would be copied, and change
    nothing."""
    store = Store(SCHEMAS[0], engine, customer)
    conflicts: set[str] = set()
    counts = dict.fromkeys(PHASES, 0)
    for phase in PHASES[:1] if dry_run else PHASES:
        for record in RECORDS.values():
            report = (
                None
                if on_progress is None
                else partial(on_progress, customer, f"{phase} {record.name}")
            )
            step = partial(_STEPS[phase], record, conflicts)
            legacy = _legacy(record)
            if dry_run:
                state = await try_job(store, legacy, step, on_progress=report)
            else:
                run = await run_job(store, _job(phase, record), legacy, step, on_progress=report)
                assert run is not None
                state = run
            counts[phase] += state.done if phase == "verify" else state.changed
    if not dry_run:
        await store.transact(partial(_forget_jobs, store))
    return MigratedCustomer(
        customer=customer,
        copied=counts["copy"],
        verified=counts["verify"],
        deleted=counts["delete"],
        conflicts=tuple(sorted(conflicts)),
    )


Conflicts = set[str]


async def _copy(record: Record[Any], _: Conflicts, tx: Transaction, entry: Entry[Any]) -> None:
    if await _copy_of(record, tx, entry) is None:
        await tx.restore(record.current, entry.record, expires=entry.expires)


async def _verify(
    record: Record[Any], conflicts: Conflicts, tx: Transaction, entry: Entry[Any]
) -> None:
    copy = await _copy_of(record, tx, entry)
    if (copy is None and await tx.row(entry.key) is not None) or (
        copy is not None and not _are_equal(copy, entry)
    ):
        conflicts.add(entry.key)


async def _delete(
    record: Record[Any], conflicts: Conflicts, tx: Transaction, entry: Entry[Any]
) -> None:
    copy = await _copy_of(record, tx, entry)
    if copy is not None and _are_equal(copy, entry):
        conflicts.discard(entry.key)
        await tx.delete(_legacy(record), **_fields(record, entry))
    else:
        conflicts.add(entry.key)


_STEPS: Final = {"copy": _copy, "verify": _verify, "delete": _delete}


async def _copy_of(record: Record[Any], tx: Transaction, entry: Entry[Any]) -> Entry[Any] | None:
    return await tx.entry(record.current, **_fields(record, entry))


def _legacy(record: Record[Any]) -> Record[Any]:
    assert record.legacy is not None
    return record.legacy


def _fields(record: Record[Any], entry: Entry[Any]) -> dict[str, Any]:
    return {record.template.fields[-1]: entry.values[-1]}


def _are_equal(copy: Entry[Any], entry: Entry[Any]) -> bool:
    return (copy.record, copy.expires) == (entry.record, entry.expires)


def _job(phase: str, record: Record[Any]) -> str:
    return f"keys-v2-{phase}-{record.name}"


async def _forget_jobs(store: Store, tx: Transaction) -> None:
    """Delete the jobs of a finished run, so that the next one starts over."""
    for phase in PHASES:
        for record in RECORDS.values():
            await forget_job(tx, store, _job(phase, record))
