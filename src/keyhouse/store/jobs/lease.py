"""Leases: one runner at a time works on a job, and another one continues it if that was killed.

Theory of operation. A lease is a row with the time until which it holds. A runner

    1. claims it: writes the row, if there is none, or if its time is over;
    2. renews it in each commit of its work, which checks that nobody else has written the row;
    3. releases it when it fails, and deletes the row when it has finished, or leaves in it what
       others are to know.

So a runner that stalled until another took over commits nothing any more, whatever the clocks say.
A JobLease is the row of a job, which names its runner, in transactions of a store. A SpaceLease is
for work below transactions: a row at a key of no schema, whose runner knows it by its revision.
"""

from typing import Any, Final, NamedTuple

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, Row, Span
from keyhouse.errors import ContentionError, LeaseError
from keyhouse.schema import JobState, Record
from keyhouse.store.writes.transaction import Transaction

LEASE_MS: Final = 12_000
"""Time after which another runner may continue. Work that takes longer between two commits renews
the lease meanwhile."""

_CLAIMS_MAX: Final = 20


def leased(owner: str, now: int, cursor: str = "") -> JobState:
    """Return the state of a new job with its lease."""
    return JobState(owner=owner, lease_until=now + LEASE_MS, started_at=now, cursor=cursor)


class JobLease(NamedTuple):
    """The lease of the runner `owner` on a job."""

    job: Record[JobState]
    name: str
    owner: str

    async def claim(self, tx: Transaction, *, creates: bool = True) -> JobState | None:
        """Take the lease, unless the job is finished; return its state.

        None if there is no job, and `creates` is false. Raises LeaseError while another runner
        holds the lease.
        """
        state = await tx.get(self.job, name=self.name)
        if state is None:
            if not creates:
                return None
            state = leased(self.owner, tx.now)
        elif state.finished:
            return state
        else:
            _check_expired(state.lease_until, tx.now, job=self.name)
        state.owner = self.owner
        await self.renew(tx, state)
        return state

    async def held(self, tx: Transaction) -> JobState:
        """Return the state of the job. Raises LeaseError if another runner has taken it over."""
        state = await tx.get(self.job, name=self.name)
        if state is None or state.owner != self.owner:
            raise _taken_over(job=self.name)
        return state

    async def renew(self, tx: Transaction, state: JobState) -> None:
        """Write the state of the job, with the lease renewed."""
        state.lease_until = tx.now + LEASE_MS
        await tx.put(self.job, state, name=self.name)

    async def release(self, tx: Transaction) -> None:
        """End the lease, so that the next run need not wait for its expiry."""
        state = await tx.get(self.job, name=self.name)
        if state is not None and state.owner == self.owner:
            state.lease_until = 0
            await tx.put(self.job, state, name=self.name)

    async def finish(self, tx: Transaction) -> None:
        """Delete the row of the job."""
        await tx.delete(self.job, name=self.name)


class _LeaseRow(msgspec.Struct):
    lease_until: int


class SpaceLease:
    """The lease of work on all rows of a space, at a key that no schema of the space has.

    `members` are further members of its value; `revision` is that of its row; None: it is not held,
    and commits are made without it. It holds for `milliseconds`.
    """

    def __init__(self, engine: Engine, space: str, key: str, **members: Any) -> None:
        self.engine = engine
        self.space = space
        self.key = key
        self.revision: int | None = None
        self.milliseconds = LEASE_MS
        self.members = members

    @property
    def rows(self) -> int:
        """The number of rows that the lease adds to a commit."""
        return int(self.revision is not None)

    async def claim(self, *, by_force: bool = False) -> None:
        """Take the lease; not in a space without rows, which has nothing to work on.

        Raises LeaseError while another runner holds it, unless it is taken `by_force`.
        """
        for _ in range(_CLAIMS_MAX):
            if not (await self.engine.scan(self.space, Span(), limit=1, keys_only=True)).rows:
                return
            row = await self.row()
            if row is not None and not by_force:
                now = self.engine.clock.now()
                _check_expired(lease_until(row), now, job=self.key, space=self.space)
            if await self.claim_after(row):
                return
        raise ContentionError(
            "Other runners claim this job all the time: try again later.",
            job=self.key,
            space=self.space,
        )

    async def claim_after(self, row: Row | None) -> bool:
        """Take the lease if its row is still this one; return whether it was."""
        check = Check(self.key, None if row is None else row.revision)
        self.revision = await self.engine.commit(self.space, Batch((check,), (self._put(),)))
        return self.revision is not None

    async def commit(self, batch: Batch) -> bool:
        """Commit a batch, with the lease renewed. Returns False if a check of the batch failed;
        raises LeaseError if another runner has the lease."""
        if self.revision is None:
            return await self.engine.commit(self.space, batch) is not None
        checks = (*batch.checks, Check(self.key, self.revision))
        renewed = Batch(checks, (*batch.puts, self._put()), batch.deletes)
        revision = await self.engine.commit(self.space, renewed)
        if revision is None:
            await self.check()
            return False
        self.revision = revision
        return True

    async def check(self) -> None:
        """Raise LeaseError if another runner has taken the lease over."""
        if self.revision is not None:
            row = await self.row()
            if row is None or row.revision != self.revision:
                raise _taken_over(job=self.key, space=self.space)

    async def release(self, **left: Any) -> None:
        """End the lease: delete its row, or leave these members in it."""
        if self.revision is not None:
            checks = (Check(self.key, self.revision),)
            deletes = () if left else (self.key,)
            puts = (self._row(0, left),) if left else ()
            await self.engine.commit(self.space, Batch(checks, puts, deletes))

    async def row(self) -> Row | None:
        return (await self.engine.read(self.space, [self.key]))[0]

    def _put(self) -> Put:
        return self._row(self.engine.clock.now() + self.milliseconds, self.members)

    def _row(self, lease_until: int, members: dict[str, Any]) -> Put:
        return Put(self.key, msgspec.json.encode({"lease_until": lease_until, **members}))


def lease_until(row: Row) -> int:
    """Return when a SpaceLease expires: at once, if another program has written its row."""
    try:
        return msgspec.json.decode(row.value, type=_LeaseRow).lease_until
    except msgspec.DecodeError:
        return 0


def _check_expired(lease_until: int, now: int, **fields: str) -> None:
    if lease_until > now:
        raise LeaseError(
            "Another runner works on this job: wait for it, or until its lease expires.",
            **fields,
            seconds=(lease_until - now + 999) // 1_000,
        )


def _taken_over(**fields: str) -> LeaseError:
    return LeaseError("Another runner has taken this job over.", **fields)
