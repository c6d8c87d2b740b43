"""Leases: one runner at a time, and one that was overtaken changes nothing any more."""

import asyncio
from collections.abc import Sequence

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import LeaseError, LimitError
from keyhouse.schema import Meta, Record, Schema, Space
from keyhouse.store import FORGET_KEY, Store, Transaction
from keyhouse.store.jobs.chunk import Chunk, in_halves
from keyhouse.store.jobs.lease import LEASE_MS, JobLease, SpaceLease, lease_until
from keyhouse.store.jobs.prefix_conversion import CONVERSION_KEY

ONE = Record(int, "one:{id}", name="one")
META = Meta()
SCHEMA = Schema("leases", ONE, space=Space("a shop"), meta=META)
NOW = 1_768_737_600_000


class Runner:
    """A runner of either kind of lease, and a commit of its work."""

    def __init__(self, store: Store, key: str | None) -> None:
        self._store = store
        self._job = JobLease(META.job, "work", store.ids.new())
        self._space = None if key is None else SpaceLease(store.engine, store.space, key)

    async def claim(self) -> None:
        if self._space is not None:
            await self._space.claim()
        else:
            await self._store.transact(self._job.claim)

    async def work(self, id: str) -> None:
        if self._space is not None:
            assert await self._space.commit(Batch(puts=(Put(f"one:{id}", b"1"),)))
            return

        async def step(tx: Transaction) -> None:
            state = await self._job.held(tx)
            await tx.put(ONE, 1, id=id)
            await self._job.renew(tx, state)

        await self._store.transact(step)

    async def release(self) -> None:
        if self._space is not None:
            await self._space.release()
        else:
            await self._store.transact(self._job.release)


@pytest.mark.parametrize("key", [None, FORGET_KEY, CONVERSION_KEY])
def test_a_runner_that_stalled_commits_nothing_after_another_took_over(key: str | None) -> None:
    async def main() -> None:
        clock = ManualClock(NOW)
        engine = MemoryEngine(clock=clock)
        await engine.commit("space", Batch(puts=(Put("one:0", b"1"),)))
        first, second = (Runner(Store(SCHEMA, engine, "space"), key) for _ in range(2))
        await first.claim()
        await first.work("1")
        with pytest.raises(LeaseError, match="works on this job") as held:
            await second.claim()
        assert held.value.fields["seconds"] == LEASE_MS // 1_000
        clock.advance(milliseconds=LEASE_MS - 1)
        await first.work("2")  # renews the lease
        clock.advance(milliseconds=LEASE_MS - 1)
        with pytest.raises(LeaseError):
            await second.claim()
        clock.advance(milliseconds=1)
        await second.claim()
        with pytest.raises(LeaseError, match="taken this job over"):
            await first.work("3")
        await first.release()  # leaves the lease to its runner
        await second.work("4")
        await second.release()
        await first.claim()  # need not wait for the expiry
        keys = [
            row.key for row in (await engine.scan("space", ONE.template.span({}), limit=9)).rows
        ]
        assert keys == ["one:0", "one:1", "one:2", "one:4"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("value", "until"),
    [
        (b'{"lease_until":1768737600000}', NOW),
        (b'{"lease_until":1768737600000,"to":"tenant:acme:"}', NOW),
        (b"of another program", 0),
    ],
)
def test_a_lease_of_the_version_before_is_respected(value: bytes, until: int) -> None:
    async def main() -> None:
        engine = MemoryEngine(clock=ManualClock(NOW - 1))
        await engine.commit("space", Batch(puts=(Put(CONVERSION_KEY, value),)))
        lease = SpaceLease(engine, "space", CONVERSION_KEY, to="tenant:acme:")
        row = await lease.row()
        assert row is not None and lease_until(row) == until
        if until:
            with pytest.raises(LeaseError):
                await lease.claim()
        await lease.claim(by_force=True)
        row = await lease.row()
        assert row is not None
        assert row.value == b'{"lease_until":1768737611999,"to":"tenant:acme:"}'

    asyncio.run(main())


@pytest.mark.parametrize("fits", [1, 2, 3, 7, 50, 99, 100, 200])
def test_a_chunk_is_halved_until_it_fits_and_grows_again(fits: int) -> None:
    tried: list[int] = []

    async def work(rows: int, tx: Transaction) -> int:
        tried.append(rows)
        if rows > fits:
            raise LimitError("Too many.")
        return rows

    async def main() -> None:
        nonlocal fits
        store, chunk = Store(SCHEMA, MemoryEngine(), "space"), Chunk(100)
        for _ in range(50):
            assert await chunk.transact(store, work) <= fits
        assert len(tried) - 50 <= 50 + 7  # at most one in two fails, once it is known
        fits = 0
        with pytest.raises(LimitError):
            await chunk.transact(store, work)
        assert tried[-1] == 1
        fits = 100
        for _ in range(30):
            await chunk.transact(store, work)
        assert tried[-1] == 100

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 2, 50])
def test_items_are_worked_on_in_order_in_halves_that_fit(size: int) -> None:
    worked: list[int] = []

    async def work(items: Sequence[int]) -> int:
        if len(items) > 3:
            raise LimitError("Too many.")
        worked.extend(items)
        return len(items)

    assert asyncio.run(in_halves(list(range(size)), work, LimitError)) == size
    assert worked == list(range(size))
