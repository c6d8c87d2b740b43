"""Usage and quotas: exact within one process, whatever is counted while others write."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from keyhouse import (
    ManualClock,
    Record,
    Schema,
    Space,
    Template,
    TextSegment,
    open_engine,
    per_write,
)
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError, QuotaError, UnknownOutcomeError
from keyhouse.service.limits import USAGE_NEAR_SECONDS_MAX
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.tenants import Tenant, Tenants
from keyhouse.service.usage import Quota, Size, Usage, measure
from keyhouse.service.usage_scan import UsageScan
from keyhouse.store import Store, Transaction
from keyhouse.testing.faults import Fault, FaultyEngine, fail, meanwhile

QUOTA = 10

ITEM: Record[Any] = Record(
    Any, Template("{key}", key=TextSegment(chars_max=100)), name="item", expiry=per_write()
)
SCHEMA = Schema("items", ITEM, space=Space("a tenant", segment=TextSegment(chars_max=20)))


class Harness:
    """A tenant with a quota of ten keys, and a usage scan, on an engine with faults."""

    def __init__(self, engine: Engine, faults: tuple[Fault, ...], yields: bool) -> None:
        self.engine = FaultyEngine(engine, *faults, yields=yields)
        self.tenants = Tenants(lambda name: Tenant(name, SCHEMA, self.engine, Quota(QUOTA, 0)))
        self.tenant = self.tenants.get("trivia")
        metrics = OperationMetrics("kv", ())
        log = OperationLog("kv", 1)
        self.scan = UsageScan(SCHEMA, self.engine, self.tenants.cached, metrics, log)

    async def put(self, *keys: str) -> None:
        for key in keys:
            await self.tenant.transact(put(key))

    async def delete(self, key: str) -> None:
        await self.tenant.transact(lambda tx: tx.delete(ITEM, key=key))

    @property
    def current(self) -> int | None:
        assert self.tenant.usage is not None
        return None if self.tenant.usage.current is None else self.tenant.usage.current.keys

    async def stored(self) -> int:
        return (await measure(self.tenant.store)).keys


def put(
    key: str, value: Any = 1, ttl: int | None = None
) -> Callable[[Transaction], Awaitable[Any]]:
    return lambda tx: tx.put(ITEM, value, ttl=ttl, key=key)


def run(
    folder: Path,
    story: Callable[[Harness], Awaitable[None]],
    *,
    faults: Callable[[list[Harness]], tuple[Fault, ...]] = lambda _: (),
    yields: bool = False,
) -> None:
    async def main() -> None:
        engine = await open_engine(f"sqlite:{folder}/items.db")
        harnesses: list[Harness] = []
        harnesses.append(Harness(engine, faults(harnesses), yields))
        try:
            await story(harnesses[0])
        finally:
            await engine.close()

    asyncio.run(main())


def test_a_write_that_commits_during_a_scan_is_counted(tmp_path: Path) -> None:
    """The scan replaced what was known by its own count, and lost what was written after it had
    passed: the quota could be exceeded by as much."""

    async def story(harness: Harness) -> None:
        await harness.put(*(f"k{number}" for number in range(QUOTA - 1)))
        await harness.scan.scan()
        assert harness.current == QUOTA
        with pytest.raises(QuotaError):
            await harness.put("one-more")
        assert await harness.stored() == QUOTA

    second_scan = 2  # the first is of the first write
    run(
        tmp_path,
        story,
        faults=lambda harnesses: (
            meanwhile(second_scan, lambda: harnesses[0].put("meanwhile"), call="scan", after=True),
        ),
    )


def test_a_write_that_a_scan_saw_before_it_returned_counts_once(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        await harness.put("a", "b", "c")
        assert (harness.current, await harness.stored()) == (3, 3)

    run(
        tmp_path,
        story,
        faults=lambda harnesses: (
            meanwhile(3, lambda: harnesses[0].scan.scan(), call="commit", after=True),
        ),
    )


def test_a_write_with_an_unknown_outcome_counts_until_the_next_scan(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        await harness.put("a")
        with pytest.raises(UnknownOutcomeError):
            await harness.put("b")
        assert harness.current == 2
        with pytest.raises(UnknownOutcomeError):
            await harness.delete("a")
        assert harness.current == 2, "space that may have been freed is not given away"
        await harness.scan.scan()
        assert harness.current == await harness.stored() == 1

    run(
        tmp_path,
        story,
        faults=lambda _: (
            fail(2, UnknownOutcomeError, after=True),
            fail(3, UnknownOutcomeError, after=True),
        ),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_concurrent_writers_and_scans_never_exceed_the_quota(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def story(harness: Harness) -> None:
        most = 0

        async def write() -> None:
            nonlocal most
            for _ in range(15):
                key = f"k{rng.randrange(2 * QUOTA)}"
                try:
                    if rng.random() < 0.4:
                        await harness.delete(key)
                    else:
                        await harness.put(key)
                except QuotaError:
                    pass
                most = max(most, await harness.stored())

        async def scan() -> None:
            for _ in range(20):
                await harness.scan.scan()

        await asyncio.gather(scan(), *(write() for _ in range(8)))
        assert most <= QUOTA
        assert harness.current == await harness.stored()
        with pytest.raises(QuotaError):
            for number in range(2 * QUOTA):
                await harness.put(f"k{number}")
        assert await harness.stored() == QUOTA, "nothing was lost of what may be stored"

    run(tmp_path, story, yields=True)


def test_a_failed_scan_keeps_the_previous_count(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        await harness.put("a")
        await harness.scan.scan()
        assert (harness.current, harness.scan.counted_at) == (1, None)
        with pytest.raises(KeyhouseError):
            await harness.scan.count("trivia")

    run(
        tmp_path,
        story,
        faults=lambda _: (
            fail(2, UnknownOutcomeError, call="scan"),
            fail(3, UnknownOutcomeError, call="scan"),
        ),
    )


def usage(quota: Quota) -> tuple[Usage, Store, ManualClock]:
    clock = ManualClock()
    store = Store(SCHEMA, MemoryEngine(clock=clock), "t")
    return Usage(store, quota), store, clock


def test_space_of_a_pending_deletion_is_not_given_away() -> None:
    """A deletion in flight counted as done: another writer took its space, and kept it when the
    deletion failed."""

    async def story() -> None:
        tenant, _, _ = usage(Quota(1, 0))
        await tenant.transact(put("a"))
        deleting = asyncio.Event()

        async def delete(tx: Transaction) -> None:
            await tx.delete(ITEM, key="a")
            await deleting.wait()

        pending = asyncio.ensure_future(tenant.transact(delete))
        await asyncio.sleep(0)
        with pytest.raises(QuotaError):
            await tenant.transact(put("b"))
        deleting.set()
        await pending
        await tenant.transact(put("b"))

    asyncio.run(story())


def test_usage_is_counted_again_before_a_write_is_rejected() -> None:
    """Rows that expired, or that another process deleted, free their space."""

    async def story() -> None:
        tenant, _, clock = usage(Quota(1, 0))
        await tenant.transact(put("a", ttl=10))
        clock.advance(seconds=5)
        with pytest.raises(QuotaError) as rejected:
            await tenant.transact(put("b"))
        assert rejected.value.fields["used"] == 1 and rejected.value.fields["limit"] == 1
        clock.advance(seconds=6)
        await tenant.transact(put("b"))

    asyncio.run(story())


def test_an_old_count_is_repeated_at_the_next_write() -> None:
    async def story() -> None:
        tenant, store, clock = usage(Quota(2, 0))
        await tenant.transact(put("a"))
        await store.put(ITEM, 1, key="written-by-another-process")
        clock.advance(seconds=301)
        with pytest.raises(QuotaError):
            await tenant.transact(put("b"))
        assert tenant.current == Size(2, 29)

    asyncio.run(story())


def test_bytes_are_counted_and_shrinking_is_always_allowed() -> None:
    async def story() -> None:
        tenant, store, _ = usage(Quota(0, 20))
        await store.put(ITEM, "x" * 30, key="a")
        with pytest.raises(QuotaError) as rejected:
            await tenant.transact(put("a", "x" * 31))
        assert rejected.value.fields["quota"] == "bytes"
        await tenant.transact(put("a", "x" * 5))
        assert tenant.current == Size(1, 8)
        _, revision = await tenant.transact(put("a", "x" * 10))
        row = await store.row("a")
        assert row is not None and row.revision == revision

    asyncio.run(story())


def test_a_reservation_is_drawn_on_by_its_own_transactions() -> None:
    async def story() -> None:
        tenant, _, _ = usage(Quota(3, 0))
        reservation = await tenant.reserve(Size(2, 100))
        await tenant.transact(put("other"))
        with pytest.raises(QuotaError):
            await tenant.transact(put("another"))
        await tenant.transact(put("a"), reservation=reservation)
        await tenant.transact(put("b"), reservation=reservation)
        with pytest.raises(QuotaError):
            await tenant.transact(put("c"), reservation=reservation)
        tenant.release(reservation)
        assert tenant.current is not None and tenant.current.keys == 3 and not tenant.is_busy

    asyncio.run(story())


def test_released_reservations_are_free_again() -> None:
    async def story() -> None:
        tenant, _, _ = usage(Quota(1, 0))
        reservation = await tenant.reserve(Size(1, 1))
        with pytest.raises(QuotaError):
            await tenant.reserve(Size(1, 1))
        tenant.release(reservation)
        await tenant.transact(put("a"))

    asyncio.run(story())


def test_tenants_are_evicted_unless_they_are_busy() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        evicted: list[int] = []
        tenants = Tenants(lambda name: Tenant(name, SCHEMA, engine, Quota(5, 0)), tenants_max=3)
        tenants.on_evict = lambda: evicted.append(len(tenants))
        busy, going = tenants.get("busy"), asyncio.Event()

        async def wait(tx: Transaction) -> None:
            await going.wait()

        writing = asyncio.ensure_future(busy.transact(wait))
        await asyncio.sleep(0)
        for number in range(10):
            tenants.get(f"t{number}")
        assert tenants.cached("busy") is busy and len(tenants) == 3 and evicted
        going.set()
        await writing
        for number in range(10):
            tenants.get(f"t{number}")
        assert tenants.cached("busy") is None

    asyncio.run(story())


def two_processes() -> tuple[Usage, Usage, ManualClock]:
    clock = ManualClock()
    engine = MemoryEngine(clock=clock)
    one, other = (Usage(Store(SCHEMA, engine, "trivia"), Quota(QUOTA, 0)) for _ in range(2))
    return one, other, clock


def test_near_its_quota_a_tenant_is_counted_again_after_ten_seconds() -> None:
    """Each process counted by itself for five minutes: two of them stored twice the quota."""

    async def story() -> None:
        one, other, clock = two_processes()
        for number in range(QUOTA - 1):
            await one.transact(put(f"one-{number}"))
        await other.transact(put("other"))
        assert other.current == Size(QUOTA, other.current.bytes if other.current else 0)
        clock.advance(seconds=USAGE_NEAR_SECONDS_MAX + 1)
        with pytest.raises(QuotaError):
            await one.transact(put("one-more"))

    asyncio.run(story())


def test_a_count_that_took_long_is_not_repeated_for_each_rejection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings: list[float] = []

    def perf_counter() -> float:
        """Advance by a second with each reading: a count takes one."""
        readings.append(len(readings))
        return readings[-1]

    async def story() -> None:
        one, other, clock = two_processes()
        for number in range(QUOTA):
            await one.transact(put(f"one-{number}"))
        monkeypatch.setattr("keyhouse.service.usage.perf_counter", perf_counter)
        await one.count()
        counted = len(readings)
        for _ in range(5):
            clock.advance(seconds=3)
            with pytest.raises(QuotaError):
                await one.transact(put("one-more"))
        assert len(readings) == counted
        await other.transact(lambda tx: tx.delete(ITEM, key="one-0"))
        clock.advance(seconds=6)
        await one.transact(put("one-more"))

    asyncio.run(story())
