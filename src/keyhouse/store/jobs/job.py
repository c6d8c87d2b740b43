"""Jobs: work on more records than one commit holds, in steps that a kill neither repeats nor loses.

Each step changes some records and moves the job's cursor in the same commit. One runner works at a
time: it holds a lease and renews it with every step. If it stalls and another runner takes over,
its next commit fails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from keyhouse.advice.arguments import checked
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyhouseError,
    UnreadableError,
    UsageError,
)
from keyhouse.schema import BoundRecord, Index, JobState, KeyValues, Record, document
from keyhouse.store.entry import Entry
from keyhouse.store.jobs.chunk import Chunk
from keyhouse.store.jobs.lease import LEASE_MS, JobLease
from keyhouse.store.jobs.step_transaction import StepTransaction
from keyhouse.store.reads.scan import Scan
from keyhouse.store.store import Store
from keyhouse.store.writes.attempts import Attempts
from keyhouse.store.writes.transaction import Transaction

T = TypeVar("T")
Step = Callable[[Transaction, Entry[T]], Awaitable[None]]
Progress = Callable[[int], None]
Condition = Callable[[Transaction], Awaitable[bool]]

CHUNK_ROWS: Final = 100

CHUNK_SECONDS: Final = LEASE_MS / 3_000
"""Time of steps in one commit: slow ones must not outlast the lease, which the commit renews."""


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
    lease = JobLease(_record(store), name, store.ids.new())
    walk = _Walk(store, over, step, by, fields)
    chunk = Chunk(CHUNK_ROWS)

    async def claim(tx: Transaction) -> JobState | None:
        return None if unless is not None and await unless(tx) else await lease.claim(tx)

    async def work(rows: int, tx: Transaction) -> JobState:
        state = await walk.advance(rows, await lease.held(tx), tx)
        await lease.renew(tx, state)
        return state

    state = await walk.store.transact(claim)
    try:
        while state is not None and not state.finished:
            state = await chunk.transact(walk.store, work)
            if on_progress is not None:
                on_progress(state.done)
    except (Exception, asyncio.CancelledError, SystemExit):
        with suppress(KeyhouseError):
            await walk.store.transact(lease.release)
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
    walk = _Walk(store, over, step, by, fields)
    store = walk.store
    while not state.finished:
        tx = store.attempts.transaction_type(store)
        state = await walk.advance(CHUNK_ROWS, state, tx)
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
            key = bound.key_of(entry.key)
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


def _record(store: Store) -> Record[JobState]:
    if store.schema.meta is None:
        raise UsageError("The schema has no templates for job rows: give it a `meta`.")
    return store.schema.meta.job


def _stepping(store: Store, over: Record[Any]) -> Store:
    """Return the store whose transactions replace records of an older declaration, if `over` is
    one."""
    is_former = store.schema.is_former(over)
    return store.with_attempts(Attempts(StepTransaction)) if is_former else store


class _Walk(Generic[T]):
    """The walk of a job over its records: `store` makes the transactions of its steps.

    The scan is that of the records themselves, or of the rows of an index that lead to them.
    """

    def __init__(
        self,
        store: Store,
        over: Record[T],
        step: Step[T],
        by: Index | None,
        fields: dict[str, Any],
    ) -> None:
        self.store = store = _stepping(store, over)
        self._over = over
        self._bound = store.binding.record(over)
        self._by = None if by is None else store.binding.index(over, by)[1]
        self._step = step
        scanned: Any = self._bound if self._by is None else self._by
        keys = scanned.template.range(fields)
        self._scan = Scan(store, scanned, keys)

    async def advance(self, rows_max: int, state: JobState, tx: Transaction) -> JobState:
        """Call the step for the next records, and move the cursor past them."""
        bound, by = self._bound, self._by
        page = await self._scan.rows_after(rows_max, state.cursor or None)
        if by is not None:
            found = [by.owner_at(row.key, row.value) for row in page.rows]
        else:
            keys = [bound.key_of(row.key) for row in page.rows]
            found = [*zip(self._scan.values(page), keys, strict=True)]
        await tx.rows.read([key for _, key in found])
        started = monotonic()
        for number, (row, (values, current)) in enumerate(zip(page.rows, found, strict=True)):
            if number and monotonic() - started > CHUNK_SECONDS:
                page = page.first(number)
                break
            entry = await self._entry(tx, current, values)
            if entry is None:
                continue
            if by is not None and row.key not in by.rows(entry.record, values):
                continue  # it has left the index since the row was read, or in an earlier step
            if isinstance(tx, StepTransaction):
                tx.visit(bound, entry, in_key_order=by is None)
            try:
                await self._step(tx, entry)
            except BaseException as error:  # of the caller's code: say where it was
                error.add_note(f"at the record {entry.key}")
                raise
            state.done += 1
        state.changed += tx.pending
        state.cursor = self._scan.end(page) if page.more else state.cursor
        state.finished = not page.more
        return state

    async def _entry(self, tx: Transaction, current: str, values: KeyValues) -> Entry[T] | None:
        """Return a record that the step is to be called for; None if it is gone, or if newer code
        has written it already."""
        key = await tx.records.stored_key(self._bound, current)
        written = await tx.row(key)
        if written is None or not isinstance(tx, StepTransaction):
            return tx.records.seen(self._bound, key, values)
        if _is_rewritten(self.store, self._over, key, written[0]):
            return None
        try:
            return tx.records.seen(self._bound, key, values)
        except DataError as error:
            raise _unreadable(self._over, error) from error


def _is_rewritten(store: Store, over: Record[Any], key: str, value: bytes) -> bool:
    """Return whether newer code has written a row already, so that it is not of the declaration
    `over`: a later one decodes it and knows its members, and `over` does not."""
    former = store.binding.record(over)
    plain = _parsed(value)
    members = plain if isinstance(plain, dict) else ()
    is_readable = _decodes(former, key, value)
    if is_readable and former.json.knows(members):
        return False
    later = [
        store.binding.record(each.over)
        for each in store.schema.migrations[_following(store, over) :]
        if each.over.template.text == over.template.text
    ]
    match = store.find(key)
    return any(
        _decodes(each, key, value) and (each.json.knows(members) or not is_readable)
        for each in [*later, *([] if match is None else [match.record])]
    )


def _following(store: Store, over: Record[Any]) -> int:
    """Return the number of migrations up to the last one over this declaration."""
    return max((each.id for each in store.schema.migrations if each.over is over), default=0)


def _decodes(record: BoundRecord[Any], key: str, value: bytes) -> bool:
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
