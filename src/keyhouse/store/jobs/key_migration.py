"""Key migration: moves every record of a space from its legacy key to its current key.

Three passes over each record with legacy keys, each a resumable job: copy rows that have no copy,
compare every copy, then delete rows with an equal copy. Keys are parsed and built by templates. A
copy keeps the times and the expiry of its original. Running it again changes nothing.

It is safe while others write: a record at its current key is never older than at its legacy key,
because every write at the current key deletes the legacy row in the same commit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from keyhouse.schema import Record
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.job import forget_job, run_job, try_job
from keyhouse.store.store import Store
from keyhouse.store.writes.transaction import Transaction

PHASES: Final = ("copy", "verify", "delete")

Conflicts = set[str]


class KeyMigrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one space. `conflicts` are legacy keys that were left, because the current key has
    another value, or none."""

    copied: int = 0
    verified: int = 0
    deleted: int = 0
    conflicts: tuple[str, ...] = ()


async def migrate_keys(
    store: Store,
    *,
    job: str,
    dry_run: bool = False,
    on_progress: Callable[[str, int], None] | None = None,
) -> KeyMigrationResult:
    """Move the records of a space to their current keys. `job` is the prefix of the jobs' names.

    `dry_run` counts what would be copied, and changes nothing. `on_progress` is called with the
    phase and the record's name, and the number of rows processed.
    """
    records = [record for record in store.schema.records if record.legacy is not None]
    conflicts: Conflicts = set()
    counts = dict.fromkeys(PHASES, 0)
    for phase in PHASES[:1] if dry_run else PHASES:
        for record in records:
            report = None if on_progress is None else partial(on_progress, f"{phase} {record.name}")
            step = partial(_STEPS[phase], record, conflicts)
            legacy = _legacy(record)
            if dry_run:
                state = await try_job(store, legacy, step, on_progress=report)
            else:
                name = f"{job}-{phase}-{record.name}"
                run = await run_job(store, name, legacy, step, on_progress=report)
                assert run is not None
                state = run
            counts[phase] += state.done if phase == "verify" else state.changed
    if not dry_run:
        names = [f"{job}-{phase}-{record.name}" for phase in PHASES for record in records]
        await store.transact(partial(_forget_jobs, store, names))
    return KeyMigrationResult(
        copied=counts["copy"],
        verified=counts["verify"],
        deleted=counts["delete"],
        conflicts=tuple(sorted(conflicts)),
    )


async def _copy(record: Record[Any], _: Conflicts, tx: Transaction, entry: Entry[Any]) -> None:
    if await _copy_of(record, tx, entry) is None:
        await tx.restore(record.current, entry.record, expires=entry.expires)


async def _verify(
    record: Record[Any], conflicts: Conflicts, tx: Transaction, entry: Entry[Any]
) -> None:
    copy = await _copy_of(record, tx, entry)
    is_stored = copy is not None or await tx.row(entry.key) is not None
    if is_stored and (copy is None or not _are_equal(copy, entry)):
        conflicts.add(entry.key)


async def _delete(
    record: Record[Any], conflicts: Conflicts, tx: Transaction, entry: Entry[Any]
) -> None:
    copy = await _copy_of(record, tx, entry)
    if copy is not None and _are_equal(copy, entry):
        conflicts.discard(entry.key)
        await tx.delete(_legacy(record), **_fields(tx, record, entry))
    else:
        conflicts.add(entry.key)


_STEPS: Final = {"copy": _copy, "verify": _verify, "delete": _delete}


async def _copy_of(record: Record[Any], tx: Transaction, entry: Entry[Any]) -> Entry[Any] | None:
    return await tx.entry(record.current, **_fields(tx, record, entry))


def _legacy(record: Record[Any]) -> Record[Any]:
    assert record.legacy is not None
    return record.legacy


def _fields(tx: Transaction, record: Record[Any], entry: Entry[Any]) -> dict[str, Any]:
    """Return the key fields that the space does not fix."""
    names = tx.binding.record(record).template.fields
    return dict(zip(names, entry.values[-len(names) :], strict=True))


def _are_equal(copy: Entry[Any], entry: Entry[Any]) -> bool:
    return (copy.record, copy.expires) == (entry.record, entry.expires)


async def _forget_jobs(store: Store, names: list[str], tx: Transaction) -> None:
    """Delete the jobs of a finished run, so that the next one starts over."""
    for name in names:
        await forget_job(tx, store, name)
