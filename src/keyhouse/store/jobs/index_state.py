"""Which derived rows a space has completely: a new index on old data is noticed, and built.

Theory of operation. A job row named `indexes` lists, in its cursor, the digests of the declared
derived rows that are complete in its space. A write maintains all declared rows, so a row that is
complete stays so as long as all writers declare it.

    the list             means
    ------------------   ---------------------------------------------------------------------
    absent, no records   a new space: its first write adds the list, with all declared rows
    absent, records      written before this list was kept: every row is to be built
    lacks a digest       the row is new, or its declaration was changed: it is to be built
    has another digest   the row is no longer declared: removed from the list, so that it is
                         built again if it returns

Building is a job over the records of each such row: leased, with checkpoints. It writes the rows of
a record only where one is missing. A RecordCount is counted by scans, as `count_rebuild` explains.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from keyhouse.errors import UnbuiltIndexError
from keyhouse.schema import Derived, JobState, Meta, Record, RecordCount
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.count_rebuild import rebuild_counts
from keyhouse.store.jobs.job import forget_job, run_job
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction
from keyhouse.store.write_plan import stored_rows

__all__ = [
    "build_indexes",
    "check_indexes",
    "derived_digest",
    "index_progress",
    "missing_indexes",
    "note_migrated",
    "note_new_space",
    "remove_undeclared",
    "unbuilt_indexes",
]

INDEXES_JOB = "indexes"
"""The job row with the list."""

_SAMPLE_RECORDS = 32
"""Records at either end of a space that are looked at where the list does not tell."""

DerivedRow = tuple[Record[Any], Derived]
Progress = Callable[[Record[Any], Derived, int], None]


def derived_digest(record: Record[Any], derived: Derived) -> str:
    """Return a digest of a derived row's declaration. Only the presence of functions counts."""
    parts = [
        record.name,
        type(derived).__name__,
        derived.template.text,
        *(f"{name}={_source(source)}" for name, source in sorted(derived.fields.items())),
        *(f"each {name}={_source(source)}" for name, source in sorted(derived.each.items())),
        "" if derived.when is None else "when",
        str(getattr(derived, "value", None)),
    ]
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


async def missing_indexes(store: Store) -> list[DerivedRow]:
    """Return the derived rows that the space may lack for some records; none for a new space."""
    complete = await _complete(store)
    if complete is None and await _is_new(store):
        return []
    return [
        (record, derived)
        for record, derived in _declared(store)
        if derived_digest(record, derived) not in (complete or ())
    ]


async def unbuilt_indexes(store: Store, *, may_guess: bool = True) -> list[DerivedRow]:
    """Return the derived rows that lack records of the space: those to build. Writes nothing.

    A space without the list may have all rows although none is noted: records at either end of it
    decide, unless `may_guess` is false. Then there are none.
    """
    missing = await missing_indexes(store)
    is_noted = bool(missing) and await _complete(store) is not None
    if not is_noted and not may_guess:
        return []
    return [each for each in missing if not await _is_complete(store, *each, is_noted=is_noted)]


async def check_indexes(store: Store) -> None:
    """Raise UnbuiltIndexError if the space has records that a declared row does not list.

    Otherwise note all declared rows as complete.
    """
    await note_new_space(store)
    missing = await missing_indexes(store)
    if not missing:
        await remove_undeclared(store)
        return
    for record, derived in await unbuilt_indexes(store):
        raise UnbuiltIndexError(
            "A derived row is new, and the records that the space has are not in it: build it"
            " with `keyhouse migrate MODULE:SCHEMA --reindex`, or open the store once with"
            " `reindex=True`.",
            space=store.space,
            record=record.name,
            row=derived.template.text,
        )
    await _note(store, missing)


async def note_migrated(store: Store) -> None:
    """Note the derived rows that migrations have written, and build the counts that are new, or
    of a record whose older declaration was migrated (see `step_transaction`).

    Records at either end of the space decide whether another row was written. A space without the
    list gets none here: they decide again when it is opened.
    """
    migrated = {
        text
        for migration in store.schema.migrations
        if store.schema.is_former(migration.over)
        for text in (migration.over.name, migration.over.template.text)
    }
    missing = await missing_indexes(store)
    built: list[DerivedRow] = []
    for record, derived in _declared(store):
        is_missing = any(each is derived for _, each in missing)
        if isinstance(derived, RecordCount):  # a migration writes the other rows
            is_migrated = not migrated.isdisjoint((record.name, record.template.text))
            if is_missing or is_migrated:
                await rebuild_counts(store, record, derived)
                built.append((record, derived))
        elif is_missing and await _is_complete(store, record, derived, is_noted=False):
            built.append((record, derived))
    if built and await _complete(store) is not None:
        await _note(store, built)
    await remove_undeclared(store)


async def _is_complete(
    store: Store, record: Record[Any], derived: Derived, *, is_noted: bool
) -> bool:
    """Return whether a row that the list lacks is complete. `is_noted`: the space has the list."""
    if not (await store.keys(record, limit=1))[0]:
        return True
    # lists of spaces that are older than this rule do not have their counts
    if is_noted and not isinstance(derived, RecordCount):
        return False
    return await _is_built(store, record, derived)


async def _is_built(store: Store, record: Record[Any], derived: Derived) -> bool:
    """Return whether records at both ends of the space have their derived rows."""
    bound = store.binding.derived(derived)
    for reverse in (False, True):
        page = await store.page(record, limit=_SAMPLE_RECORDS, reverse=reverse, unreadable="skip")
        keys = [key for entry in page.entries for key in stored_rows(bound, entry)]
        if any(row is None for row in await store.rows(keys)):
            return False
    return True


async def note_new_space(store: Store) -> None:
    """Add the list to a space without records, before its first write."""
    if await _complete(store) is None and await _is_new(store):
        await _write(store, {derived_digest(*each) for each in _declared(store)})


async def index_progress(store: Store, record: Record[Any], derived: Derived) -> int:
    """Return how many records the job that builds a derived row has visited."""
    state = await store.get(_meta(store).job, name=_build_job(record, derived))
    return 0 if state is None else state.done


async def build_indexes(
    store: Store, *, again: bool = False, on_progress: Progress | None = None
) -> list[tuple[Record[Any], Derived, int]]:
    """Build the derived rows that the space lacks, or all of them `again`; return each with the
    number of records that were visited. Raises LeaseError while another runner builds one."""
    declared = list(_declared(store))
    missing = declared if again else await missing_indexes(store)
    built: list[tuple[Record[Any], Derived, int]] = []
    for record, derived in missing:
        report = None if on_progress is None else _reporter(on_progress, record, derived)
        name = _build_job(record, derived)
        if isinstance(derived, RecordCount):
            built.append((record, derived, await rebuild_counts(store, record, derived, report)))
            await _finish(store, name, derived_digest(record, derived))
            continue
        state = await run_job(
            store, name, record, _step(store, record, derived), on_progress=report
        )
        assert state is not None
        built.append((record, derived, state.done))
        await _finish(store, name, derived_digest(record, derived))
    await remove_undeclared(store)
    if await _complete(store) is None and (built or not await _is_new(store)):
        await _write(store, {derived_digest(*each) for each in declared})
    return built


async def remove_undeclared(store: Store) -> None:
    """Remove rows that are no longer declared from the list: writes do not maintain them."""
    known = {derived_digest(*each) for each in _declared(store)}
    complete = await _complete(store)
    if complete is not None and not complete <= known:
        await _write(store, set(complete & known))


def _step(store: Store, record: Record[Any], derived: Derived) -> Any:
    bound = store.binding.derived(derived)

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        keys = list(bound.rows(entry.record, entry.values))
        await tx.rows.read(keys)
        if any([await tx.row(key) is None for key in keys]):
            await tx.rewrite(record, entry)

    return step


async def _finish(store: Store, job: str, digest: str) -> None:
    async def work(tx: Transaction) -> None:
        state = await tx.get(_meta(store).job, name=INDEXES_JOB)
        complete = set() if state is None else _parsed(state)
        await tx.put(_meta(store).job, _list(complete | {digest}, tx.now), name=INDEXES_JOB)
        await forget_job(tx, store, job)

    await store.transact(work)


async def _write(store: Store, digests: set[str]) -> None:
    await store.put(_meta(store).job, _list(digests, store.engine.clock.now()), name=INDEXES_JOB)


async def _note(store: Store, rows: list[DerivedRow]) -> None:
    """Add derived rows to the list."""
    complete = await _complete(store) or frozenset()
    await _write(store, {*complete, *(derived_digest(*each) for each in rows)})


async def _complete(store: Store) -> frozenset[str] | None:
    state = await store.get(_meta(store).job, name=INDEXES_JOB)
    return None if state is None else frozenset(_parsed(state))


async def _is_new(store: Store) -> bool:
    """Return whether the space has no record with derived rows."""
    for record in {id(record): record for record, _ in _declared(store)}.values():
        if (await store.keys(record, limit=1))[0]:
            return False
    return True


def _declared(store: Store) -> list[DerivedRow]:
    """Return the derived rows as they are declared, without a prefix of the schema: the list stays
    true when the prefix is converted."""
    schema = store.schema
    return [
        (record, derived)
        for record in (schema.aliases(each)[0] for each in schema.records)
        for derived in record.derived
    ]


def _list(digests: set[str], now: int) -> JobState:
    return JobState(
        owner="", lease_until=0, started_at=now, cursor=",".join(sorted(digests)), finished=True
    )


def _parsed(state: JobState) -> set[str]:
    return set(filter(None, state.cursor.split(",")))


def _build_job(record: Record[Any], derived: Derived) -> str:
    return f"index-{derived_digest(record, derived)}"


def _meta(store: Store) -> Meta:
    assert store.schema.meta is not None, "the caller checks that the schema has meta rows"
    return store.schema.meta


def _source(source: object) -> str:
    return "function" if callable(source) else str(source)


def _reporter(
    on_progress: Progress, record: Record[Any], derived: Derived
) -> Callable[[int], None]:
    return lambda done: on_progress(record, derived, done)
