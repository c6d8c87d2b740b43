"""The sweeper: expired rows are deleted, measured and logged; a backlog is worked off without the
interval."""

import asyncio
from typing import Any

from structlog.testing import capture_logs

from keyhouse import ManualClock, Record, Schema, Space, Store, Template, TextSegment, per_write
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import UnavailableError
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.sweeper import Sweeper

ITEM: Record[Any] = Record(
    Any, Template("{key}", key=TextSegment(chars_max=100)), name="item", expiry=per_write()
)
SCHEMA = Schema("items", ITEM, space=Space("a tenant", segment=TextSegment(chars_max=20)))


def sweeper(engine: Engine, **options: Any) -> tuple[Sweeper, OperationMetrics]:
    metrics = OperationMetrics("items", ())
    return Sweeper(engine, 300, metrics, OperationLog("items", 1), **options), metrics


async def expired(clock: ManualClock, count: int) -> MemoryEngine:
    engine = MemoryEngine(clock=clock)
    store = Store(SCHEMA, engine, "t")
    for number in range(count):
        await store.put(ITEM, 1, ttl=1, key=f"k{number}")
    clock.advance(seconds=2)
    return engine


def test_a_sweep_is_measured_and_logged() -> None:
    async def story() -> None:
        sweeping, metrics = sweeper(await expired(ManualClock(), 3))
        with capture_logs() as lines:
            assert await sweeping.sweep() == 3
        assert (metrics.swept, sum(metrics.sweeps.steps)) == (3, 1)
        assert [(line["event"], line["removed"]) for line in lines] == [("items cleanup", 3)]

    asyncio.run(story())


def test_a_failed_sweep_is_logged_and_does_not_stop_the_task() -> None:
    class Broken(MemoryEngine):
        async def sweep(self, *, limit: int) -> int:
            raise UnavailableError("The server can't be reached.")

    async def story() -> None:
        sweeping, metrics = sweeper(Broken())
        with capture_logs() as lines:
            assert await sweeping.sweep() == 0
        assert [line["event"] for line in lines] == ["items cleanup failed"]
        assert metrics.swept == 0

    asyncio.run(story())


def test_an_interval_of_zero_never_sweeps() -> None:
    async def story() -> None:
        metrics = OperationMetrics("items", ())
        await Sweeper(MemoryEngine(), 0, metrics, OperationLog("items", 1)).run()

    asyncio.run(story())


def test_a_clock_that_was_set_forward_deletes_nothing_at_once() -> None:
    async def story() -> None:
        clock, timer = ManualClock(), ManualClock(0)
        engine = MemoryEngine(clock=clock)
        await Store(SCHEMA, engine, "t").put(ITEM, 1, ttl=30 * 86_400, key="scene")
        sweeping, _ = sweeper(engine, timer=timer)
        clock.advance(seconds=40 * 86_400)
        with capture_logs() as lines:
            assert await sweeping.sweep() == 0
            timer.advance(seconds=300)
            clock.advance(seconds=300)
            assert await sweeping.sweep() == 0
        assert [line["event"] for line in lines] == ["items cleanup failed"], "logged once"
        clock.advance(seconds=-40 * 86_400)
        assert await sweeping.sweep() == 0
        assert await Store(SCHEMA, engine, "t").get(ITEM, key="scene") == 1, "it was set right"

    asyncio.run(story())


def test_a_clock_that_stays_ahead_is_believed_after_an_hour() -> None:
    async def story() -> None:
        clock, timer = ManualClock(), ManualClock(0)
        engine = MemoryEngine(clock=clock)
        await Store(SCHEMA, engine, "t").put(ITEM, 1, ttl=60, key="k")
        sweeping, _ = sweeper(engine, timer=timer)
        clock.advance(seconds=7_200)
        assert await sweeping.sweep() == 0
        timer.advance(seconds=3_600)
        clock.advance(seconds=3_600)
        assert await sweeping.sweep() == 1

    asyncio.run(story())


def test_a_process_that_sleeps_between_two_sweeps_is_not_a_leap() -> None:
    async def story() -> None:
        clock, timer = ManualClock(), ManualClock(0)
        engine = MemoryEngine(clock=clock)
        await Store(SCHEMA, engine, "t").put(ITEM, 1, ttl=60, key="k")
        sweeping, _ = sweeper(engine, timer=timer)
        clock.advance(seconds=86_400)
        timer.advance(seconds=86_400)
        assert await sweeping.sweep() == 1

    asyncio.run(story())
