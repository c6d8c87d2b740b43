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

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from keyhouse.errors import LimitError, UsageError
from keyhouse.schema import BoundRecord, BoundSchema, JobState, KeyValues, Record, deletion_job
from keyhouse.schema.meta import DELETION_JOBS
from keyhouse.store.entry import ANY, Unset
from keyhouse.store.jobs.chunk import Chunk
from keyhouse.store.jobs.lease import JobLease, leased
from keyhouse.store.jobs.store_like import StoreLike
from keyhouse.store.writes.link_guard import LinkGuard
from keyhouse.store.writes.transaction import Transaction

_CHUNK_ROWS: Final = 100

Owned = tuple[BoundRecord[Any], KeyValues]


async def cascade_delete(
    store: StoreLike, record: Record[Any], expect: int | Unset | None, fields: dict[str, Any]
) -> bool:
    """Delete a record and all that belongs to it: in one commit if it can hold that, else by a job.

    Returns whether the record was there, or was being deleted. Raises LeaseError while another
    runner works on the job.
    """
    try:
        if await store.transact(lambda tx: tx.delete(record, expect=expect, **fields)):
            return True
    except LimitError:
        deletion = _Deletion(store, record, fields)
        if await store.transact(partial(deletion.start, expect)):
            await deletion.run()
            return True
    return await _resume(store, record, fields)


async def resume_deletions(store: StoreLike) -> int:
    """Finish the deletions that were interrupted, and return their number.

    Leaves those to it that another runner works on.
    """
    resumed, _ = await resume_expired(store)
    return resumed


async def resume_expired(store: StoreLike) -> tuple[int, int | None]:
    """Finish the deletions whose lease has expired, and return their number.

    The second result is the time when the first lease of the others expires; None if there are
    none.
    """
    if not isinstance(getattr(store, "binding", None), BoundSchema):
        raise UsageError("Deletions are resumed in a Store.", given=store)
    meta = store.binding.schema.meta
    if meta is None or not store.binding.has_links:
        return 0, None
    jobs = [
        (str(entry.values[0]), entry.record)
        async for entry in store.scan(meta.job)
        if str(entry.values[0]).startswith(DELETION_JOBS)
    ]
    resumed = 0
    leases: list[int] = []
    for name, state in jobs:
        if state.lease_until > store.engine.clock.now():
            leases.append(state.lease_until)
        else:
            resumed += await _resume_job(store, name, state)
    return resumed, min(leases, default=None)


async def _resume_job(store: StoreLike, name: str, state: JobState) -> bool:
    match = store.binding.find(state.cursor)
    if match is None:
        return False  # of a declaration that is no longer there
    record, fields = match.record.declared, match.fields
    if await store.get(record, **fields) is None:
        return await _resume(store, record, fields)

    async def delete_guard(tx: Transaction) -> None:
        """Delete the guard of a deletion that died before it deleted anything."""
        if await tx.get(_job_record(store), name=name) == state:
            await tx.delete(_job_record(store), name=name)

    await store.transact(delete_guard)
    return False


async def _resume(store: StoreLike, record: Record[Any], fields: dict[str, Any]) -> bool:
    """Continue the deletion of a record that is gone, if there is one."""
    deletion = _Deletion(store, record, fields)
    if not await store.transact(deletion.claim):
        return False
    await deletion.run()
    return True


class _Deletion:
    """The job that deletes what belongs to one record."""

    def __init__(self, store: StoreLike, record: Record[Any], fields: dict[str, Any]) -> None:
        self._store = store
        self._record = record
        self._fields = fields
        self._bound = store.binding.record(record)
        self._key = self._bound.template.build(fields)
        name = deletion_job(record.name, self._key)
        self._lease = JobLease(_job_record(store), name, store.ids.new())

    async def start(self, expect: int | Unset | None, tx: Transaction) -> bool:
        """Delete the record and write the job; return whether the record was there."""
        job = leased(self._lease.owner, tx.now, cursor=self._key)
        return await tx.delete_alone(self._record, expect=expect, job=job, **self._fields)

    async def claim(self, tx: Transaction) -> bool:
        """Take over a job that was started; return whether there is one."""
        if await tx.get(self._record, **self._fields) is not None:
            return False
        return await self._lease.claim(tx, creates=False) is not None

    async def run(self) -> None:
        chunk = Chunk(_CHUNK_ROWS)
        while True:
            owners = await chunk.transact(self._store, self._step)
            if owners is None:
                return
            for child, values in owners:
                named: dict[str, Any] = dict(zip(child.template.fields, values, strict=True))
                await cascade_delete(self._store, child.declared, ANY, named)

    async def _step(self, rows: int, tx: Transaction) -> list[Owned] | None:
        """Delete some of what belonged to the record. Returns dependents that own records
        themselves; None when nothing is left."""
        state = await self._lease.held(tx)
        assert tx.links is not None  # a record that owns others has links
        owners: list[Owned] = []
        async for child, key, values in self._owned(tx.links):
            if self._store.binding.links(child).is_owner:
                owners.append((child, values))
            else:
                await tx.links.delete_dependent(child, key, values, tx.delete_record)
            if len(owners) + tx.pending >= rows:
                break
        if not owners and not tx.pending:
            await self._lease.finish(tx)
            return None
        state.changed += tx.pending
        await self._lease.renew(tx, state)
        return owners

    async def _owned(
        self, guard: LinkGuard
    ) -> AsyncIterator[tuple[BoundRecord[Any], str, KeyValues]]:
        keys = tuple(self._fields[name] for name in self._bound.template.fields)
        for link in self._store.binding.links(self._bound).dependents:
            if link.owns:
                async for key, values in guard.dependents(link, keys):
                    yield link.child, key, values


def _job_record(store: StoreLike) -> Record[JobState]:
    meta = store.binding.schema.meta
    assert meta is not None  # a schema with links has one
    return meta.job
