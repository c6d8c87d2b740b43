"""Migrate a space's rows to the version that this code writes, one numbered step after the other.

Each step is a job (see `jobs`): it has one runner and checkpoints, and can be killed and resumed.
Its record and the new version are written in one commit. A space that is newer than the code raises
NewerError and is left unchanged.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.clock import IdSource
from keyhouse.engine import Engine
from keyhouse.errors import DeclarationError, LeaseError, NewerError, UsageError
from keyhouse.keyring import KeyRing
from keyhouse.limits import OPEN_WAIT_SECONDS
from keyhouse.schema import (
    JobState,
    Meta,
    Migration,
    MigrationDone,
    Record,
    Schema,
    migration_job,
)
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.cascade_delete import resume_deletions
from keyhouse.store.jobs.index_state import (
    build_indexes,
    check_indexes,
    note_migrated,
    remove_undeclared,
)
from keyhouse.store.jobs.job import forget_job, run_job, try_steps
from keyhouse.store.store import Store
from keyhouse.store.verify.derived_rows import delete_dangling
from keyhouse.store.writes.transaction import Transaction

Progress = Callable[[Migration, int], None]

_DELETED_ROWS = 50
"""Rows deleted in one commit, which every engine holds."""

WAIT_RETRY_SECONDS: Final = 0.2
"""Pause before a space that another process prepares is tried again."""


class MigrationResult(msgspec.Struct, frozen=True):
    """One migration: the records it visited, and the rows it wrote (in a dry run: would write)."""

    migration: Migration
    records: int
    rows: int
    duration_ms: int


@checked(UsageError)
async def open_migrated(
    schema: Schema,
    engine: Engine,
    space: str,
    *,
    ids: IdSource | None = None,
    key_ring: KeyRing | None = None,
    owns_engine: bool = False,
    reindex: bool = False,
    wait_seconds: float = OPEN_WAIT_SECONDS,
    **fixed: str,
) -> Store:
    """Return a store at the version of its schema, migrating it if it is older.

    Finishes deletions that were interrupted. Raises NewerError if the store is newer, and
    UnbuiltIndexError if a derived row lacks records, unless it is to `reindex`. Waits while another
    process prepares the space; raises LeaseError if that takes longer than `wait_seconds`. With
    `owns_engine`, closing the store closes the engine.
    """
    store = Store(
        schema,
        engine,
        space,
        ids=ids,
        key_ring=key_ring,
        owns_engine=owns_engine,
        **fixed,
    )
    started = monotonic()
    while True:
        try:
            await _prepare(store, reindex=reindex)
            return store
        except LeaseError as error:
            waited = monotonic() - started
            if waited >= wait_seconds:
                if wait_seconds:
                    raise _still_prepared(space, wait_seconds, error) from None
                raise
        await asyncio.sleep(min(WAIT_RETRY_SECONDS, wait_seconds - waited))


async def _prepare(store: Store, *, reindex: bool) -> None:
    """Migrate a space, finish its deletions and check its indexes. Raises LeaseError while another
    process does one of these."""
    schema = store.schema
    await migrate(store)
    await resume_deletions(store)
    if schema.meta is not None and any(record.derived for record in schema.records):
        if reindex:
            await build_indexes(store)
        await check_indexes(store)
    elif schema.meta is not None:
        await remove_undeclared(store)


def _still_prepared(space: str, waited: float, error: LeaseError) -> LeaseError:
    return LeaseError(
        "Another process still migrates the space, or builds its indexes: open the store when it"
        " has finished, or with a greater `wait_seconds`.",
        space=space,
        waited_seconds=waited,
        **error.fields,
    )


@checked(DeclarationError)
def reindex(id: int, description: str, record: Record[Any]) -> Migration:
    """Return a migration that writes the derived rows of every record again, and deletes those
    that no record derives.

    For derived rows that are new in the declaration, or were changed, also by an `upgrade`.
    """

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        await tx.rewrite(record, entry)

    return Migration(id, description, record, step)


@checked(UsageError)
async def version(store: Store) -> int:
    """Return the version of the space's rows; raises NewerError if this code does not know it."""
    if store.schema.meta is None:
        await store.guard.check_newer()
        return 0
    stored = await store.get(store.schema.meta.version) or 0
    if stored > store.schema.version:
        raise NewerError(
            "The store was migrated by newer code: use the newer program. If this is not the schema"
            " of the space, open its own file or space.",
            space=store.space,
            found=stored,
            known=store.schema.version,
        )
    return stored


@checked(UsageError)
async def migrate(
    store: Store, *, dry_run: bool = False, on_progress: Progress | None = None
) -> list[MigrationResult]:
    """Apply every pending migration of the space.

    With `dry_run` nothing is written, and each migration sees the records as earlier ones over the
    same keys leave them; other rows are as they are stored. Its rows include those of these.
    """
    done: list[MigrationResult] = []
    pending = store.schema.migrations[await version(store) :]
    for migration in pending:
        report = None if on_progress is None else _reporter(on_progress, migration)
        if dry_run:
            steps = _steps_before(migration, pending)
            state: JobState | None = await try_steps(store, steps, on_progress=report)
        else:
            if not store.schema.is_former(migration.over):  # a step replaces the rows of those
                await delete_dangling(store, migration.over.derived)
            state = await run_job(
                store,
                migration_job(migration.id),
                migration.over,
                migration.step,
                on_progress=report,
                unless=partial(_is_done, store, migration),
            )
        if state is None:
            continue  # another runner has finished it in the meantime
        took = _now(store) - state.started_at
        done.append(MigrationResult(migration, state.done, state.changed, took))
        if not dry_run:
            # before the version is written: a run that is killed in between does it again
            await _delete_former_counts(store, migration.over)
            if migration is pending[-1]:
                await note_migrated(store)
            await _finish(store, migration, state, took)
    return done


def _steps_before(
    migration: Migration, pending: Sequence[Migration]
) -> list[tuple[Record[Any], Callable[..., Any]]]:
    """Return the steps of the pending migrations over the keys of this one, up to its own."""
    text = migration.over.template.text
    return [
        (each.over, each.step)
        for each in pending
        if each.id <= migration.id and each.over.template.text == text
    ]


def _now(store: Store) -> int:
    return store.engine.clock.now()


async def _delete_former_counts(store: Store, over: Record[Any]) -> None:
    """Delete the counts of an older declaration that the schema does not have any more.
    `note_migrated` counts the others again."""
    if not store.schema.is_former(over):
        return
    for count in over.derived:
        is_count = store.binding.derived(count).strategy == "add"
        cursor: str | None = None
        while is_count:
            keys, cursor = await store.keys(count, limit=_DELETED_ROWS, cursor=cursor)
            if former := [key for key in keys if store.find(key) is None]:
                await store.transact(partial(_delete_rows, former))
            if cursor is None:
                break


async def _delete_rows(keys: list[str], tx: Transaction) -> None:
    for key in keys:
        tx.write(key, None)


async def _is_done(store: Store, migration: Migration, tx: Transaction) -> bool:
    return (await tx.get(_meta(store).version) or 0) >= migration.id


async def _finish(store: Store, migration: Migration, state: JobState, took: int) -> None:
    meta = _meta(store)

    async def work(tx: Transaction) -> None:
        if await _is_done(store, migration, tx):
            return
        record = MigrationDone(
            id=migration.id,
            applied_at=meta.times.format(tx.now),
            description=migration.description,
            duration_ms=took,
            counts={"records": state.done, "rows": state.changed},
        )
        await tx.put(meta.done, record)
        await tx.put(meta.version, migration.id)
        await forget_job(tx, store, migration_job(migration.id))

    await store.transact(work)


def _meta(store: Store) -> Meta:
    assert store.schema.meta is not None, "a schema with migrations has one"
    return store.schema.meta


def _reporter(on_progress: Progress, migration: Migration) -> Callable[[int], None]:
    return lambda done: on_progress(migration, done)
