"""Jobs: work on more records than one commit holds, in steps that a kill neither repeats nor loses.

Each step changes some records and moves the job's cursor in the same commit. One runner works at a
time: it holds a lease and renews it with every step. If it stalls and another runner takes over,
its next commit fails.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from keyhouse.arguments import checked
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyhouseError,
    LeaseError,
    LimitError,
    UnreadableError,
    UsageError,
)
from keyhouse.schema import Index, JobState, Record, document
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.step_transaction import StepTransaction
from keyhouse.store.reads.scan import Scan
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

R = TypeVar("R")
T = TypeVar("T")
Step = Callable[[Transaction, Entry[T]], Awaitable[None]]
Progress = Callable[[int], None]
Condition = Callable[[Transaction], Awaitable[bool]]

_CHUNK_ROWS = 100
_LEASE_MS = 60_000


@checked(UsageError)
async def run_job(
    store: Store,
    name: str,
    over: Record[T],
    step: Step[T],
    /,
    *,
    on_progress: Progress | None = None,
    unless: Condition | None = None,
    by: Index | None = None,
    **fields: Any,
) -> JobState | None:
    """Call `step` once for each record of `over`, resuming after the last checkpoint.

    With `fields`, only for records whose leading key fields have these values; with `by`, the key
    is that of the index, and the records come in its order. A step that moves a record further
    along the index meets it again there. The job's name must tell its fields apart.

    A finished job stays finished. `unless` is asked in the transaction that would start the job; if
    it is true, the job is not needed and None is returned. Raises LeaseError while another runner
    holds the lease.
    """
    owner = store.ids.new()
    store = _stepping(store, over)
    scan = _scan(store, over, by, fields)
    state = await store.transact(partial(_claim, store, name, owner, unless))
    try:
        while state is not None and not state.finished:
            state = await transact_chunk(
                store, partial(_work, store, name, owner, scan, over, step), _CHUNK_ROWS
            )
            if on_progress is not None:
                on_progress(state.done)
    except (Exception, asyncio.CancelledError, SystemExit):
        with suppress(KeyhouseError):
            await store.transact(partial(_release, store, name, owner))
        raise
    return state


@checked(UsageError)
async def try_job(
    store: Store,
    over: Record[T],
    step: Step[T],
    /,
    *,
    on_progress: Progress | None = None,
    by: Index | None = None,
    **fields: Any,
) -> JobState:
    """Run the job without writing: each step runs in a transaction that is discarded."""
    state = JobState(owner="", lease_until=0, started_at=store.engine.clock.now())
    store = _stepping(store, over)
    scan = _scan(store, over, by, fields)
    while not state.finished:
        tx = store.transaction_type(store.engine, store.space, store.binding)
        state = await _advance(store, tx, state, scan, over, step, _CHUNK_ROWS)
        if on_progress is not None:
            on_progress(state.done)
    return state


async def try_steps(
    store: Store,
    steps: Sequence[tuple[Record[Any], Step[Any]]],
    /,
    *,
    on_progress: Progress | None = None,
) -> JobState:
    """Run several steps over declarations of one record without writing: for each record, one after
    the other, each on what the one before has left. See `try_job`."""
    [(over, first), *others] = steps

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        await first(tx, entry)
        for later, run in others:
            bound = store.binding.record(later)
            key = bound.current_key(entry.key)
            if await tx.row(key) is None:
                return  # an earlier step has deleted it
            found = tx.records.seen(bound, key, entry.values)
            assert found is not None  # its row is there
            if isinstance(tx, StepTransaction):
                tx.visit(bound, found, in_key_order=True)
            await run(tx, found)

    former = next((each for each, _ in steps if store.schema.is_former(each)), over)
    return await try_job(_stepping(store, former), over, step, on_progress=on_progress)


async def forget_job(tx: Transaction, store: Store, name: str) -> None:
    """Delete a job's row, so that the job can run again."""
    await tx.delete(_record(store), name=name)


async def transact_chunk(
    store: Store, work: Callable[[int, Transaction], Awaitable[R]], rows_max: int
) -> R:
    """Run `work(rows, tx)` in a transaction with `rows_max` rows, halved until one commit holds it.

    Raises LimitError if a single row is too much for one commit.
    """
    rows = rows_max
    while True:
        try:
            return await store.transact(partial(work, rows))
        except LimitError:
            if rows == 1:
                raise
            rows //= 2


def _record(store: Store) -> Record[JobState]:
    if store.schema.meta is None:
        raise UsageError("The schema has no templates for job rows: give it a `meta`.")
    return store.schema.meta.job


async def _claim(
    store: Store, name: str, owner: str, unless: Condition | None, tx: Transaction
) -> JobState | None:
    if unless is not None and await unless(tx):
        return None
    state = await tx.get(_record(store), name=name)
    if state is not None and not state.finished and state.lease_until > tx.now:
        raise LeaseError(
            "Another runner works on this job: wait for it, or until its lease expires.",
            job=name,
            seconds=(state.lease_until - tx.now + 999) // 1_000,
        )
    if state is None:
        state = JobState(owner=owner, lease_until=0, started_at=tx.now)
    if not state.finished:
        state.owner, state.lease_until = owner, tx.now + _LEASE_MS
        await tx.put(_record(store), state, name=name)
    return state


async def _release(store: Store, name: str, owner: str, tx: Transaction) -> None:
    """End the lease, so that the next run need not wait for its expiry."""
    state = await tx.get(_record(store), name=name)
    if state is not None and state.owner == owner:
        state.lease_until = 0
        await tx.put(_record(store), state, name=name)


async def _work(
    store: Store,
    name: str,
    owner: str,
    scan: Scan,
    over: Record[T],
    step: Step[T],
    chunk_rows: int,
    tx: Transaction,
) -> JobState:
    state = await tx.get(_record(store), name=name)
    if state is None or state.owner != owner:
        raise LeaseError("Another runner has taken this job over.", job=name)
    state = await _advance(store, tx, state, scan, over, step, chunk_rows)
    state.lease_until = tx.now + _LEASE_MS
    await tx.put(_record(store), state, name=name)
    return state


def _stepping(store: Store, over: Record[Any]) -> Store:
    """Return the store whose transactions replace records of an older declaration, if `over` is
    one."""
    if store.schema.is_former(over):
        store = copy.copy(store)
        store.transaction_type = StepTransaction
    return store


def _scan(store: Store, over: Record[Any], by: Index | None, fields: dict[str, Any]) -> Scan:
    """Return the scan of the records themselves, or of the rows of an index that lead to them."""
    declared: Any = store.binding.record(over) if by is None else store.binding.index(over, by)[1]
    keys = declared.template.range(fields)
    return Scan(store.engine, store.space, store.binding, declared, keys, reverse=False)


async def _advance(
    store: Store,
    tx: Transaction,
    state: JobState,
    scan: Scan,
    over: Record[T],
    step: Step[T],
    chunk_rows: int,
) -> JobState:
    bound = store.binding.record(over)
    page, position = await scan.rows_after(chunk_rows, state.cursor or None)
    if isinstance(scan.declared, Index):
        found = [scan.declared.owner_at(row.key, row.value) for row in page.rows]
    else:
        found = [(scan.values(row.key), bound.current_key(row.key)) for row in page.rows]
    await tx.rows.read([key for _, key in found])
    for row, (values, current) in zip(page.rows, found, strict=True):
        key = await tx.records.stored_key(bound, current)
        if (written := await tx.row(key)) is None:
            continue
        if isinstance(tx, StepTransaction) and _is_rewritten(store, over, key, written[0]):
            continue
        try:
            entry = tx.records.seen(bound, key, values)
        except DataError as error:
            if not isinstance(tx, StepTransaction):
                raise
            raise _unreadable(over, error) from error
        assert entry is not None  # its row is there
        by = scan.declared if isinstance(scan.declared, Index) else None
        if by is not None and row.key not in by.rows(entry.record, values):
            continue  # it has left the index since the row was read, or in an earlier step
        if isinstance(tx, StepTransaction):
            tx.visit(bound, entry, in_key_order=by is None)
        try:
            await step(tx, entry)
        except BaseException as error:  # of the caller's code: say where it was
            error.add_note(f"at the record {entry.key}")
            raise
        state.done += 1
    state.changed += tx.pending
    state.cursor = position or state.cursor
    state.finished = position is None
    return state


def _is_rewritten(store: Store, over: Record[Any], key: str, value: bytes) -> bool:
    """Return whether newer code has written a row already, so that it is not of the declaration
    `over`: a later one decodes it and knows its members, and `over` does not."""
    former = store.binding.record(over)
    plain = _parsed(value)
    members = plain if isinstance(plain, dict) else ()
    is_readable = _decodes(former, key, value)
    if is_readable and former.knows(members):
        return False
    later = [
        store.binding.record(each.over)
        for each in store.schema.migrations[_following(store, over) :]
        if each.over.template.text == over.template.text
    ]
    match = store.find(key)
    return any(
        _decodes(each, key, value) and (each.knows(members) or not is_readable)
        for each in [*later, *([] if match is None else [match.record])]
    )


def _following(store: Store, over: Record[Any]) -> int:
    """Return the number of migrations up to the last one over this declaration."""
    return max((each.id for each in store.schema.migrations if each.over is over), default=0)


def _decodes(record: Record[Any], key: str, value: bytes) -> bool:
    try:
        record.decode(value, key)
    except DataError:
        return False
    return True


def _parsed(value: bytes) -> Any:
    try:
        return document.parse(value)
    except DocumentError:
        return None


def _unreadable(over: Record[Any], error: DataError) -> UnreadableError:
    return UnreadableError(
        "A row is not of the declaration that the migration is over: give `over` the type that"
        " the rows have, or write the row again; `keyhouse explain` shows it.",
        **{**error.fields, "record": over.name},
    )
