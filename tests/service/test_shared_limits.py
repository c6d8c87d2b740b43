"""Limits hold over the processes of a host, and quotas over all that write one store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from keyhouse import ManualClock
from keyhouse.auth import JwtSettings, mint
from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import QuotaError
from keyhouse.http import make_app
from keyhouse.http.event_stream import TenantStreams
from keyhouse.service.event_hub import EventHub
from keyhouse.service.host import ServiceHost
from keyhouse.service.limit_table import LIMITS_FILE, LimitTable
from keyhouse.service.limits import GRANT_SECONDS
from keyhouse.service.rates import SharedRateLimiter
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.service.usage import Quota, Size, Usage, measure
from keyhouse.service.worker import Worker
from keyhouse.store import Store, Transaction
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.service.support.worker_process import (
    ITEM,
    SCHEMA,
    WorkerProcess,
    all_run,
    filled,
    workers,
)
from tests.support.engine_openers import OPENERS, postgres_schema
from tests.support.polling import until

SHARED = [name for name in OPENERS if name in ("sqlite", "postgres")]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WorkerProcess]]:
    with workers(tmp_path_factory.mktemp("host"), 3) as running:
        yield running


# The table of a host


def test_a_rate_is_one_for_all_workers(three: list[WorkerProcess]) -> None:
    """Each worker had the whole burst: 20 requests at once became 60."""
    assert sum(all_run(three, "requests", "ann", 50, 20)) == 20
    allowed = sum(all_run(three, "requests", "bob", 4_000, 5_000))
    assert 5_000 - 3 * 50 < allowed <= 5_000, "each may have taken a hundredth that it has not used"


def test_places_are_those_of_all_workers(three: list[WorkerProcess]) -> None:
    held = all_run(three, "hold", "ann", 50, 20)
    assert sum(held) == 20
    for worker, count in zip(three, held, strict=True):
        worker.run("release", "ann", count)
    assert sum(all_run(three, "hold", "ann", 10, 20)) == 20


def test_a_killed_worker_leaves_no_lock_and_no_places(tmp_path: Path) -> None:
    with workers(tmp_path, 3) as (first, second, third):
        assert first.run("hold", "ann", 20, 20) == 20
        assert second.run("hold", "ann", 1, 20) == 0
        first.start("lock", "cid")
        assert first.result() == "locked"
        second.start("requests", "cid", 2, 2)
        first.kill()
        assert second.result() == 0, "what the other has written is a number"
        assert sum(all_run([second, third], "hold", "ann", 20, 20)) == 20
        with workers(tmp_path, 1) as (fourth,):
            assert fourth.run("hold", "ann", 20, 20) == 0, "its column is that of the first"


def test_a_table_is_rebuilt_when_it_is_missing_damaged_or_unused(tmp_path: Path) -> None:
    path = tmp_path / LIMITS_FILE
    for content in (None, b"", b"damaged" * 1_000_000, None):
        if content is not None:
            path.write_bytes(content)
        with workers(tmp_path, 2) as running:
            assert sum(all_run(running, "requests", "ann", 9, 9)) == 9
    with workers(tmp_path, 2) as (first, second):
        path.unlink()
        with workers(tmp_path, 2) as later:
            assert sum(all_run(later, "requests", "ann", 9, 9)) == 9
        assert sum(all_run([first, second], "requests", "ann", 9, 9)) == 9, "they keep theirs"


def test_a_table_has_its_place_on_the_disk_before_it_is_used(tmp_path: Path) -> None:
    """A worker that wrote to a map with holes was ended by a signal when the disk was full."""
    table = LimitTable.open(tmp_path, 2)
    stat = (tmp_path / LIMITS_FILE).stat()
    assert stat.st_blocks * 512 >= stat.st_size > 0
    table.close()


def test_a_full_bucket_gives_up_what_can_be_spared_first(tmp_path: Path) -> None:
    table = LimitTable.open(tmp_path, 1, buckets=4)
    slots = table.slots("rates")
    for number in range(1_000):
        with slots.locked(f"t{number}", 1_000) as slot:
            slot.set(number, kept_until=999)
    assert slots.hold("ann", 1)
    for number in range(1_000):
        with slots.locked(f"u{number}", 1_000) as slot:
            slot.set(number, kept_until=5_000)
    assert not slots.hold("ann", 1), "places are kept"
    slots.release("ann")
    assert slots.hold("ann", 1)
    table.close()


# Rates over hosts


def test_hosts_share_a_rate_but_for_what_each_spends_between_two_exchanges() -> None:
    """A rate of 20 in a second, with 20 at once, became 300 in four seconds on three hosts, where
    one allows 100."""

    async def story(engine: Engine, clock: ManualClock) -> None:
        shared = SharedLimit("rates", engine=engine)
        hosts = [SharedRateLimiter(shared, 20, burst=20, clock=clock) for _ in range(3)]
        allowed = 0
        for _ in range(400):
            for host in hosts:
                allowed += sum(not host.take("ann") for _ in range(2))
            await until(lambda: len(asyncio.all_tasks()) == 1)
            clock.advance(milliseconds=10)
        assert 100 - 3 <= allowed <= 110
        assert not hosts[0].take("bob"), "another tenant has its own"

    run(story)


def test_a_host_that_exceeds_a_burst_with_others_pays_it_back() -> None:
    async def story(engine: Engine, clock: ManualClock) -> None:
        shared = SharedLimit("rates", engine=engine)
        hosts = [SharedRateLimiter(shared, 100, burst=100, clock=clock) for _ in range(3)]
        at_once = sum(not host.take("ann") for host in hosts for _ in range(200))
        assert at_once == 300, "none of them has heard of the others"
        later = 0
        for _ in range(600):
            clock.advance(milliseconds=10)
            for host in hosts:
                later += not host.take("ann")
            await until(lambda: len(asyncio.all_tasks()) == 1)
        assert 700 * 0.95 <= at_once + later <= 700 * 1.1

    run(story)


# Quotas


@pytest.mark.parametrize("name", SHARED)
def test_a_quota_is_exact_over_processes_that_write_at_once(
    name: str, three: list[WorkerProcess], tmp_path: Path
) -> None:
    """Each process counted by itself: three of them stored three times the quota."""

    async def prepare() -> str:
        return await postgres_schema() if name == "postgres" else f"sqlite:{tmp_path / 'items.db'}"

    url = asyncio.run(prepare())
    assert sum(all_run(three, "fill", url, Quota(100, is_shared=True), 150)) == 100
    assert all_run(three, "fill", url, Quota(0, 2_000, is_shared=True), 150) != [0, 0, 0]


def run(story: Callable[[Engine, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock()
    asyncio.run(_awaited(story(MemoryEngine(clock=clock), clock)))


async def _awaited(work: Awaitable[None]) -> None:
    await work


def process(engine: Engine, quota: int) -> Usage:
    """Return the usage of one tenant in a further process."""
    return Usage(Store(SCHEMA, engine, "ann"), Quota(quota, is_shared=True))


async def keys(engine: Engine) -> int:
    return (await measure(Store(SCHEMA, engine, "ann"))).keys


async def delete(usage: Usage, name: str, count: int) -> None:
    async def work(tx: Transaction) -> None:
        for number in range(count):
            await tx.delete(ITEM, key=f"{name}-{number}")

    await usage.transact(work)


def test_processes_that_take_turns_use_all_of_a_quota() -> None:
    async def story(engine: Engine, clock: ManualClock) -> None:
        turns = [process(engine, 1_000) for _ in range(3)]
        for number in range(1_000):
            assert await filled(turns[number % 3], str(number), 1) == 1, number
        assert [await filled(usage, "more", 1) for usage in turns] == [0, 0, 0]

    run(story)


def test_what_one_process_deletes_another_can_write() -> None:
    async def story(engine: Engine, clock: ManualClock) -> None:
        one, two = process(engine, 100), process(engine, 100)
        assert await filled(one, "one", 60) == 60
        left = await filled(two, "two", 60)
        assert 40 - 100 // 20 <= left <= 40, "the other may have a grant that it has not used"
        await delete(one, "one", 60)
        assert await filled(one, "again", 30) == 30, "its own deletions are known at once"
        clock.advance(seconds=2)
        assert await filled(two, "more", 60) >= 30 - 100 // 20, "those of others when it counts"
        clock.advance(seconds=GRANT_SECONDS)
        await filled(two, "rest", 60)
        assert await keys(engine) == 100

    run(story)


def test_a_dead_process_gives_its_grant_back() -> None:
    async def story(engine: Engine, clock: ManualClock) -> None:
        held = await process(engine, 100).reserve(Size(50))
        assert held.size.keys == 50
        other = process(engine, 100)
        assert await filled(other, "other", 100) == 50
        clock.advance(seconds=GRANT_SECONDS)
        assert await filled(other, "more", 100) == 50

    run(story)


def test_a_process_does_not_use_a_grant_that_has_expired() -> None:
    async def story(engine: Engine, clock: ManualClock) -> None:
        slow, other = process(engine, 10), process(engine, 10)
        assert await filled(slow, "slow", 3) == 3
        clock.advance(seconds=GRANT_SECONDS)
        assert await filled(other, "other", 10) == 7
        with pytest.raises(QuotaError) as rejected:
            await slow.transact(lambda tx: tx.put(ITEM, 1, key="more"))
        assert rejected.value.fields["used"] == 10

    run(story)


def test_what_a_count_has_seen_deleted_is_not_freed_again() -> None:
    """The reply of a deletion came after a count that had seen it: its space was given away twice.
    A simulated run found it."""

    async def story(engine: Engine, clock: ManualClock) -> None:
        assert await filled(process(engine, 10), "other", 10) == 10
        clock.advance(seconds=GRANT_SECONDS)

        async def write() -> None:
            assert await filled(one, "meanwhile", 2) == 1

        one = process(FaultyEngine(engine, meanwhile(1, write, call="commit", after=True)), 10)
        await delete(one, "other", 1)
        assert await filled(one, "more", 2) == 0
        assert await keys(engine) == 10

    run(story)


def test_the_row_is_written_seldom_far_from_the_quota_and_expires() -> None:
    """A grant is as large as what was spent of the last one."""

    async def story(engine: Engine, clock: ManualClock) -> None:
        usage = process(engine, 100_000)
        before = await Store(SCHEMA, engine, "ann").revision()
        assert await filled(usage, "one", 1_000) == 1_000
        written = await Store(SCHEMA, engine, "ann").revision() - before - 1_000
        assert written <= 12
        clock.advance(seconds=3_600)
        await engine.sweep(limit=1_000)
        assert [space async for space in engine.spaces()] == ["ann"]

    run(story)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "sqlite" else [pytest.mark.extra])
        for name in OPENERS
        if name not in ("memory", "rocksdb")
    ],
)
def test_a_quota_is_exact_over_hosts_on_every_engine_that_they_can_share(
    name: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        opener, clock = OPENERS[name](tmp_path), SystemClock()
        engines = [await opener(clock) for _ in range(3)]
        hosts = [process(engine, 50) for engine in engines]
        writing = (filled(usage, f"{number}", 60) for number, usage in enumerate(hosts))
        assert sum(await asyncio.gather(*writing)) == 50
        assert await keys(engines[0]) == 50
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


# A service


@asynccontextmanager
async def served(
    engine: Engine, folder: Path, host: ServiceHost, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the items in one process of several; yield a client of the tenant ann."""
    given = JwtSettings(jwt_secret="0123456789abcdefghijklmnopqrstuvwxyz")
    context = ServiceContext(
        engine=engine,
        data=folder,
        metrics=CollectorRegistry(),
        settings={"jwt_secret": given.jwt_secret, **settings},
        name="items",
        host=host,
    )
    spec = schema_service(SCHEMA)(context)
    assert isinstance(spec, ServiceSpec)
    token = mint(given, folder, "ann", scopes=("read", "write"), clock=engine.clock)
    app = make_app([spec], workers=host.worker.count, slots=host.slots)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://items/items",
        headers={"authorization": f"Bearer {token}"},
    ) as client:
        yield client


@pytest.mark.parametrize("is_one_host", [True, False], ids=["workers", "hosts"])
def test_a_served_schema_has_one_quota_and_one_rate(is_one_host: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engines = [SqliteEngine.open(tmp_path / "items.db", clock=clock) for _ in range(2)]
        table = LimitTable.open(tmp_path, 2)
        async with AsyncExitStack() as stack:
            hosts = [
                ServiceHost(worker=Worker(number, 2), table=table)
                if is_one_host
                else ServiceHost(shares_engines=True)
                for number in range(2)
            ]
            options = {"quota_keys": 20, "rate_per_second": 1, "rate_burst": 40}
            clients = [
                await stack.enter_async_context(served(engine, tmp_path, host, **options))
                for engine, host in zip(engines, hosts, strict=True)
            ]
            codes = [
                (await clients[number % 2].put(f"/records/item/k{number}", json=1)).status_code
                for number in range(45)
            ]
            assert codes[:20] == [201] * 20 and set(codes[20:]) == {429}
            for client in clients * 2:  # each learns by its requests what the other has spent
                await until(lambda: len(asyncio.all_tasks()) == 1)
                response = await client.get("/records/item")
            assert response.json()["code"] == "RATE_LIMITED"
        table.close()
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


def test_workers_count_the_event_streams_of_a_tenant_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        table = LimitTable.open(tmp_path, 2)
        workers = [TenantStreams(2, table.slots("streams:items")) for _ in range(2)]
        hub, store = EventHub(), Store(SCHEMA, MemoryEngine(), "ann")
        streams = [each.limited(hub.stream(store, ITEM), "ann") for each in workers]
        sources = [await stream.subscribe(None) for stream in streams]
        with pytest.raises(QuotaError):
            await streams[0].subscribe(None)
        sources[1].close()
        sources.append(await streams[0].subscribe(None))
        for source in sources:
            source.close()
        table.close()

    asyncio.run(scenario())
