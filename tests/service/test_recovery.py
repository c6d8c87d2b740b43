"""A running service finishes the deletions and erasures that a killed process has left, once."""

import asyncio
import multiprocessing
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from keyhouse import ManualClock, Store
from keyhouse.engine import Engine, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.server import BackgroundTasks
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.recovery import Recovery
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import Keyspace, ServiceContext
from keyhouse.store import FORGET_KEY, verify
from keyhouse.testing.faults import FaultyEngine, Killed, die
from tests.service.support.killed_erasure import erase
from tests.store.support.linked_schema import ENTRY, LIST, MARKS_WITH_TAG, PERSON, SCHEMA, fill
from tests.support.polling import loop_turns, until

PROCESSES = multiprocessing.get_context("forkserver")
HOUR_MS = 3_600_000
FINISHED = {"interrupted erasure of a space finished", "interrupted deletions finished"}


async def rows(engine: Engine, space: str) -> list[str]:
    return [row.key for row in (await engine.scan(space, Span(), limit=1_000)).rows]


def kill_midway(path: Path, work: str, space: str) -> int:
    """Start a process that works, an hour ago by its clock, and kill it after a few commits; return
    the number of rows left."""

    async def left() -> int:
        engine = SqliteEngine.open(path)
        try:
            return len(await rows(engine, space))
        finally:
            await engine.close()

    before = asyncio.run(left())
    process = PROCESSES.Process(
        target=erase, args=(str(path), work, int(time.time() * 1_000) - HOUR_MS)
    )
    process.start()
    while process.is_alive() and asyncio.run(left()) > before - 40:
        pass
    process.kill()
    process.join()
    after = asyncio.run(left())
    assert 0 < after < before, "it was not killed in the middle"
    return after


@pytest.mark.long
def test_services_finish_what_a_process_killed_with_9_has_left_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"

    async def prepare() -> None:
        engine = SqliteEngine.open(path)
        await fill(Store(SCHEMA, engine, "space"), "ada", lists=3, size=40)
        await fill(Store(SCHEMA, engine, "space"), "bo", lists=1, size=2)
        await fill(Store(SCHEMA, engine, "gone"), "ada", lists=3, size=40)
        await engine.close()

    async def serve() -> None:
        """Run two services on the file."""
        async with AsyncExitStack() as stack:
            engines = [SqliteEngine.open(path) for _ in range(2)]
            for number, engine in enumerate(engines):
                stack.push_async_callback(engine.close)
                context = ServiceContext(
                    engine=engine, data=tmp_path / str(number), metrics=CollectorRegistry()
                )
                spec: Any = schema_service(SCHEMA)(context)
                await stack.enter_async_context(BackgroundTasks([spec], Metrics("0")))
            store = Store(SCHEMA, engines[0], "space")

            async def is_finished() -> bool:
                jobs = [key for key in await rows(engines[0], "space") if "delete-" in key]
                said = {line["event"] for line in lines}
                return not jobs and not await rows(engines[0], "gone") and said >= FINISHED

            await until(is_finished)
            assert await store.get(PERSON, id="ada") is None
            assert (
                await store.count(ENTRY) == 2 == await store.record_count(MARKS_WITH_TAG, tag="x")
            )
            assert [key for key in await rows(engines[0], "space") if "ada" in key] == []
            assert [finding async for finding in verify(store)] == []
            await loop_turns(500)  # for a line of the second service, if it did the work again

    asyncio.run(prepare())
    kill_midway(path, "delete", "space")
    kill_midway(path, "forget", "gone")
    with capture_logs() as lines:
        asyncio.run(serve())
    assert [line["event"] for line in lines].count("interrupted erasure of a space finished") == 1
    assert not [line for line in lines if line["log_level"] == "error"]


def test_work_is_left_to_a_runner_until_its_lease_expires() -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock=clock)
        recovery = Recovery(
            "linked", [Keyspace(schema=SCHEMA, engine=engine)], OperationLog("linked", 1)
        )
        await fill(Store(SCHEMA, engine, "a"), lists=3, size=20)
        await fill(Store(SCHEMA, engine, "b"), lists=3, size=20)
        for space, work in (("a", "delete"), ("b", "forget")):
            faulty: Any = FaultyEngine(engine, die(24), rows=8)
            store = Store(SCHEMA, faulty, space)
            with pytest.raises(Killed):
                await (store.delete(PERSON, id="ada") if work == "delete" else store.forget())
        assert await recovery.resume() == 0
        assert FORGET_KEY in await rows(engine, "b")
        clock.advance(seconds=61)
        assert await recovery.resume() >= 2
        assert await rows(engine, "b") == []
        assert await Store(SCHEMA, engine, "a").count(LIST) == 0
        assert await recovery.resume() == 0

    asyncio.run(story())
