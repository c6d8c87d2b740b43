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

The digest of a row includes the version of its record, since `upgrade` may change what the records
derive. If only the version differs, records at either end of the space decide.

Building deletes the rows that no record derives, then runs a job over the records of each such row:
leased, with checkpoints. It writes the rows of a record only where one is missing or differs. A
count is counted by scans, as `recount` explains.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from keyhouse.errors import DataError, DocumentError, UnbuiltIndexError
from keyhouse.schema import (
    BoundDerived,
    Derived,
    JobState,
    Meta,
    Record,
)
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.job import forget_job, run_job
from keyhouse.store.jobs.recount import rebuild_counts
from keyhouse.store.store import Store
from keyhouse.store.verify.derived_rows import delete_dangling
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import stored_rows

__all__ = [
    "build_indexes",
    "check_indexes",
    "declared_indexes",
    "derived_digest",
    "index_progress",
    "missing_indexes",
    "note_migrated",
    "note_new_space",
    "remove_undeclared",
    "unbuilt_indexes",
]

INDEXES_JOB = "indexes"
"""The job row with the list: that of a finished job, so that nobody takes it for work."""

_SAMPLE_RECORDS = 32
"""Records at either end of a space that are looked at where the list does not tell."""

DerivedRow = tuple[Record[Any], Derived]
Progress = Callable[[Record[Any], Derived, int], None]


def derived_digest(record: Record[Any], derived: Derived, version: int | None = None) -> str:
    """Return a digest of a derived row's declaration, or of that at an older `version` of the
    record. Only the presence of functions counts."""
    if version is None:
        version = _version(record)
    parts = [
        record.name,
        type(derived).__name__,
        derived.template.text,
        *(f"{name}={_source(source)}" for name, source in sorted(derived.fields.items())),
        *(f"each {name}={_source(source)}" for name, source in sorted(derived.each.items())),
        "" if derived.when is None else "when",
        str(getattr(derived, "value", None)),
        *([f"version={version}"] if version > 1 else []),
    ]
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def declared_indexes(store: Store) -> list[DerivedRow]:
    """Return the derived rows that `build_indexes` builds again."""
    return list(_declared(store))


async def missing_indexes(store: Store) -> list[DerivedRow]:
    """Return the derived rows that the space may lack for some records; none for a new space."""
    return await _missing(store, await _complete(store))


async def _missing(store: Store, complete: frozenset[str] | None) -> list[DerivedRow]:
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
    return await _unbuilt(store, await _complete(store), may_guess=may_guess)


async def _unbuilt(
    store: Store, complete: frozenset[str] | None, *, may_guess: bool = True
) -> list[DerivedRow]:
    """Decide with one reading of the list: another process may write it at any time."""
    if complete is None and not may_guess:
        return []
    return [
        each
        for each in await _missing(store, complete)
        if not await _is_complete(
            store, *each, is_noted=complete is not None and not _was_complete(*each, complete)
        )
    ]


async def check_indexes(store: Store) -> None:
    """Raise UnbuiltIndexError if the space has records that a declared row does not list.

    Otherwise note all declared rows as complete.
    """
    await note_new_space(store)
    complete = await _complete(store)
    missing = await _missing(store, complete)
    if not missing:
        await remove_undeclared(store)
        return
    for record, derived in await _unbuilt(store, complete):
        raise UnbuiltIndexError(
            "A derived row is new or changed, and the records of the space are not in it: build it"
            " with `keyhouse migrate --reindex`, or open the store once with `reindex=True`.",
            space=store.space,
            record=record.name,
            row=derived.template.text,
        )
    await _note(store, missing)


async def note_migrated(store: Store) -> None:
    """Note the derived rows that migrations have written, and build the counts that are new, or
    of a record that was migrated: steps leave them (see `step_transaction` and `rewrite`).

    Records at either end of the space decide whether another row was written. A space without the
    list gets none here: they decide again when it is opened.
    """
    migrated = {
        text
        for migration in store.schema.migrations
        for text in (migration.over.name, migration.over.template.text)
    }
    missing = await missing_indexes(store)
    built: list[DerivedRow] = []
    for record, derived in _declared(store):
        is_missing = any(each is derived for _, each in missing)
        if _is_count(store, derived):  # a migration writes the other rows
            is_migrated = not migrated.isdisjoint((record.name, record.template.text))
            if is_missing or is_migrated:
                await rebuild_counts(store, record, derived)
                built.append((record, derived))
        elif is_missing and await _is_complete(store, record, derived, is_noted=False):
            built.append((record, derived))
    if built and await _complete(store) is not None:
        await _note(store, built)
    await remove_undeclared(store)


def _was_complete(record: Record[Any], derived: Derived, complete: frozenset[str]) -> bool:
    """Return whether the list has the row as of an older version of its record."""
    return any(
        derived_digest(record, derived, version) in complete
        for version in range(1, _version(record))
    )


async def _is_complete(
    store: Store, record: Record[Any], derived: Derived, *, is_noted: bool
) -> bool:
    """Return whether a row that the list lacks is complete. `is_noted`: the space has the list."""
    if not (await store.keys(record, limit=1))[0]:
        return True
    # lists of spaces that are older than this rule do not have their counts
    if is_noted and not _is_count(store, derived):
        return False
    return await _is_built(store, record, derived)


async def _is_built(store: Store, record: Record[Any], derived: Derived) -> bool:
    """Return whether records at both ends of the space have their derived rows."""
    bound = store.binding.derived(derived)
    for reverse in (False, True):
        page = await store.page(record, limit=_SAMPLE_RECORDS, reverse=reverse, unreadable="skip")
        expected = [each for entry in page.entries for each in stored_rows(bound, entry).items()]
        stored = await store.rows([key for key, _ in expected])
        for (_, contribution), row in zip(expected, stored, strict=True):
            if _lacks(bound, None if row is None else row.value, contribution):
                return False
    return True


async def note_new_space(store: Store) -> None:
    """Add the list to a space without records, before its first write."""
    if await _complete(store) is None and await _is_new(store):
        await _add_list(store)


async def index_progress(store: Store, record: Record[Any], derived: Derived) -> int:
    """Return how many records the job that builds a derived row has visited."""
    state = await store.get(_meta(store).job, name=_build_job(record, derived))
    return 0 if state is None else state.done


async def build_indexes(
    store: Store, *, again: bool = False, on_progress: Progress | None = None
) -> list[tuple[Record[Any], Derived, int]]:
    """Build the derived rows that the space lacks, or all of them `again`; return each with the
    number of records that were visited. Raises LeaseError while another runner builds one."""
    missing = declared_indexes(store) if again else await missing_indexes(store)
    built: list[tuple[Record[Any], Derived, int]] = []
    await delete_dangling(store, [derived for _, derived in missing])
    for record, derived in missing:
        report = None if on_progress is None else _reporter(on_progress, record, derived)
        name = _build_job(record, derived)
        if _is_count(store, derived):
            records = await rebuild_counts(store, record, derived, report)
        else:
            state = await run_job(
                store, name, record, _step(store, record, derived), on_progress=report
            )
            assert state is not None
            records = state.done
        built.append((record, derived, records))
        await _note(store, [(record, derived)], finished=name)
    await remove_undeclared(store)
    if built or not await _is_new(store):
        await _add_list(store)
    return built


async def remove_undeclared(store: Store) -> None:
    """Remove rows that are no longer declared from the list: writes do not maintain them."""
    known = _digests(_declared(store))
    await _change(store, lambda complete: None if complete is None else complete & known)


def _step(store: Store, record: Record[Any], derived: Derived) -> Any:
    bound = store.binding.derived(derived)

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        expected = bound.rows(entry.record, entry.values)
        await tx.rows.read(list(expected))
        for key, contribution in expected.items():
            row = await tx.row(key)
            if _lacks(bound, None if row is None else row[0], contribution):
                await tx.rewrite(record, entry)
                return

    return step


def _lacks(derived: BoundDerived, row: bytes | None, contribution: Any) -> bool:
    """Return whether a row is missing, or does not have the contribution of a record. A row that
    another record holds, and one that does not decode, are findings of `verify`."""
    if row is None or derived.has_one_holder or derived.strategy == "add":
        return row is None
    try:
        return not derived.holds(row, contribution)
    except (DataError, DocumentError):
        return False


def _is_count(store: Store, derived: Derived) -> bool:
    return store.binding.derived(derived).strategy == "add"


async def _change(
    store: Store,
    change: Callable[[frozenset[str] | None], frozenset[str] | None],
    *,
    finished: str | None = None,
) -> None:
    """Change the list, None if it is absent, in one commit with the end of a `finished` job."""

    async def work(tx: Transaction) -> None:
        state = await tx.get(_meta(store).job, name=INDEXES_JOB)
        before = None if state is None else _parsed(state)
        after = change(before)
        if after is not None and after != before:
            await tx.put(_meta(store).job, _list(after, tx.now), name=INDEXES_JOB)
        if finished is not None:
            await forget_job(tx, store, finished)

    await store.transact(work)


async def _add_list(store: Store) -> None:
    """Add the list with all declared rows, unless the space has one."""
    declared = _digests(_declared(store))
    await _change(store, lambda complete: declared if complete is None else None)


async def _note(store: Store, rows: list[DerivedRow], *, finished: str | None = None) -> None:
    """Add derived rows to the list."""
    digests = _digests(rows)
    await _change(store, lambda complete: digests | (complete or set()), finished=finished)


async def _complete(store: Store) -> frozenset[str] | None:
    state = await store.get(_meta(store).job, name=INDEXES_JOB)
    return None if state is None else _parsed(state)


async def _is_new(store: Store) -> bool:
    """Return whether the space has no record with derived rows."""
    for record in dict.fromkeys(record for record, _ in _declared(store)):
        if (await store.keys(record, limit=1))[0]:
            return False
    return True


def _declared(store: Store) -> list[DerivedRow]:
    """Return the derived rows as they are declared, without a prefix of the schema: the list stays
    true when the prefix is converted."""
    schema = store.schema
    return [
        (record, derived)
        for record in (schema.first_handle(each) for each in schema.records)
        for derived in record.derived
    ]


def _digests(rows: list[DerivedRow]) -> frozenset[str]:
    return frozenset(derived_digest(*each) for each in rows)


def _list(digests: frozenset[str], now: int) -> JobState:
    return JobState(
        owner="", lease_until=0, started_at=now, cursor=",".join(sorted(digests)), finished=True
    )


def _parsed(state: JobState) -> frozenset[str]:
    return frozenset(filter(None, state.cursor.split(",")))


def _build_job(record: Record[Any], derived: Derived) -> str:
    return f"index-{derived_digest(record, derived)}"


def _meta(store: Store) -> Meta:
    assert store.schema.meta is not None, "the caller checks that the schema has meta rows"
    return store.schema.meta


def _version(record: Record[Any]) -> int:
    return 1 if record.version is None else record.version[1]


def _source(source: object) -> str:
    return "function" if callable(source) else str(source)


def _reporter(
    on_progress: Progress, record: Record[Any], derived: Derived
) -> Callable[[int], None]:
    return lambda done: on_progress(record, derived, done)
