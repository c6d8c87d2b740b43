"""Deletion of a record that owns more than one commit holds, as a job that a kill does not lose.

    1. One commit deletes the record, with its derived rows, and writes the job's row. From then on
       readers do not find the record, nothing can be put that belongs to it, and the record cannot
       be put again.
    2. Each further commit deletes some of what belonged to it, and renews the job's lease. A
       dependent that owns records itself is deleted like any other owner, before the job continues.
    3. The last commit deletes the job's row.

The job needs no cursor: what is deleted is not found again. One that was killed is resumed by the
next deletion of the same record, by `resume_deletions`, by `open_store`, by a running service, and
by the repair of `verify`. Work that was done is not repeated, so counts and summaries change once.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from keyhouse.clock import IdSource
from keyhouse.engine import Engine, Row
from keyhouse.errors import LeaseError, LimitError, UsageError
from keyhouse.schema import JobState, Keys, Record, deletion_job
from keyhouse.schema.meta import DELETION_JOBS
from keyhouse.store.binding import Binding
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.link_guard import LinkGuard
from keyhouse.store.transaction import Transaction

R = TypeVar("R")

_CHUNK_ROWS = 100
_LEASE_MS = 60_000

Owned = tuple[Record[Any], Keys]


class Linked(Protocol):
    """The part of a Store that is used here."""

    space: str
    binding: Binding
    ids: IdSource

    @property
    def engine(self) -> Engine: ...

    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R: ...

    async def get(self, record: Record[Any], /, **fields: Any) -> Any: ...

    def scan(self, record: Record[Any], /) -> AsyncIterator[Entry[Any]]: ...

    def row_scan(self) -> AsyncGenerator[Row, None]: ...


async def delete_with_owned(
    store: Linked, record: Record[Any], expect: int | Unset | None, fields: dict[str, Any]
) -> bool:
    """Delete a record and all that belongs to it: in one commit if it can hold that, else by a job.

    Returns whether the record was there, or was being deleted. Raises LeaseError while another
    runner works on the job.
    """
    try:
        if await store.transact(lambda tx: tx.delete(record, expect=expect, **fields)):
            return True
    except LimitError:
        owner = store.ids.new()
        if await store.transact(partial(_start, store, record, expect, fields, owner)):
            await _run(store, record, fields, owner)
            return True
    return await _resume(store, record, fields)


async def resume_deletions(store: Linked) -> int:
    """Finish the deletions that were interrupted, and return their number.

    Leaves those to it that another runner works on.
    """
    resumed, _ = await resume_expired(store)
    return resumed


async def resume_expired(store: Linked) -> tuple[int, int | None]:
    """Finish the deletions whose lease has expired, and return their number.

    The second result is the time when the first lease of the others expires; None if there are
    none.
    """
    if not isinstance(getattr(store, "binding", None), Binding):
        raise UsageError("Deletions are resumed in a Store.", given=store)
    meta = store.binding.schema.meta
    if meta is None or not store.binding.has_links:
        return 0, None
    names = [
        (entry.values[0], entry.record)
        async for entry in store.scan(meta.job)
        if str(entry.values[0]).startswith(DELETION_JOBS)
    ]
    resumed = 0
    leases: list[int] = []
    for name, state in names:
        if state.lease_until > store.engine.clock.now():
            leases.append(state.lease_until)
        else:
            resumed += await _resume_job(store, str(name), state)
    return resumed, min(leases, default=None)


async def _resume_job(store: Linked, name: str, state: JobState) -> bool:
    found = store.binding.find(state.cursor)
    if found is None:
        return False  # of a declaration that is no longer there
    record, fields = store.binding.original(found.record), found.fields
    if await store.get(record, **fields) is None:
        return await _resume(store, record, fields)
    await store.transact(partial(_forget_guard, store, name, state))
    return False


async def _forget_guard(store: Linked, name: str, state: JobState, tx: Transaction) -> None:
    """Delete the guard of a deletion that died before it deleted anything."""
    if await tx.get(_job_record(store), name=name) == state:
        await tx.delete(_job_record(store), name=name)


async def _start(
    store: Linked,
    record: Record[Any],
    expect: int | Unset | None,
    fields: dict[str, Any],
    owner: str,
    tx: Transaction,
) -> bool:
    job = JobState(
        owner=owner,
        lease_until=tx.now + _LEASE_MS,
        started_at=tx.now,
        cursor=store.binding.record(record).template.build(fields),
    )
    return await tx.delete_alone(record, expect=expect, job=job, **fields)


async def _resume(store: Linked, record: Record[Any], fields: dict[str, Any]) -> bool:
    """Continue the deletion of a record that is gone, if there is one."""
    owner = store.ids.new()
    if not await store.transact(partial(_claim, store, record, fields, owner)):
        return False
    await _run(store, record, fields, owner)
    return True


async def _claim(
    store: Linked, record: Record[Any], fields: dict[str, Any], owner: str, tx: Transaction
) -> bool:
    name = _name(store, record, fields)
    state = await tx.get(_job_record(store), name=name)
    if state is None or await tx.get(record, **fields) is not None:
        return False
    if state.lease_until > tx.now:
        raise LeaseError(
            "Another runner deletes what belonged to this record: wait for it, or until its lease"
            " expires.",
            record=record.name,
            seconds=(state.lease_until - tx.now + 999) // 1_000,
        )
    state.owner, state.lease_until = owner, tx.now + _LEASE_MS
    await tx.put(_job_record(store), state, name=name)
    return True


async def _run(store: Linked, record: Record[Any], fields: dict[str, Any], owner: str) -> None:
    rows = _CHUNK_ROWS
    while True:
        try:
            pending = await store.transact(partial(_step, store, record, fields, owner, rows))
        except LimitError:
            if rows == 1:
                raise
            rows //= 2
            continue
        if pending is None:
            return
        for child, values in pending:
            named: dict[str, Any] = dict(zip(child.template.fields, values, strict=True))
            await delete_with_owned(store, store.binding.original(child), ANY, named)


async def _step(
    store: Linked,
    record: Record[Any],
    fields: dict[str, Any],
    owner: str,
    rows: int,
    tx: Transaction,
) -> list[Owned] | None:
    """Delete some of what belonged to the record. Returns dependents that own records themselves;
    None when nothing is left."""
    name = _name(store, record, fields)
    state = await tx.get(_job_record(store), name=name)
    if state is None or state.owner != owner:
        raise LeaseError("Another runner has taken this deletion over.", record=record.name)
    owners: list[Owned] = []
    guard = _link_guard(tx)
    async for child, key, values in _owned(store, record, fields, guard):
        if store.binding.links(child).is_owner:
            owners.append((child, values))
        else:
            await guard.delete_dependent(child, key, values, tx.delete_record)
        if len(owners) + tx.pending >= rows:
            break
    if not owners and not tx.pending:
        await tx.delete(_job_record(store), name=name)
        return None
    state.changed += tx.pending
    state.lease_until = tx.now + _LEASE_MS
    await tx.put(_job_record(store), state, name=name)
    return owners


async def _owned(
    store: Linked, record: Record[Any], fields: dict[str, Any], guard: LinkGuard
) -> AsyncIterator[tuple[Record[Any], str, Keys]]:
    bound = store.binding.record(record)
    keys = tuple(fields[name] for name in bound.template.fields)
    for link in store.binding.links(bound).dependents:
        if link.owns:
            async for key, values in guard.dependents(link, keys):
                yield link.child, key, values


def _link_guard(tx: Transaction) -> LinkGuard:
    assert tx.links is not None  # a record that owns others has links
    return tx.links


def _job_record(store: Linked) -> Record[JobState]:
    meta = store.binding.schema.meta
    assert meta is not None  # a schema with links has one
    return meta.job


def _name(store: Linked, record: Record[Any], fields: dict[str, Any]) -> str:
    return deletion_job(record.name, store.binding.record(record).template.build(fields))
