"""Processes that start together on one empty store: one migrates the library, the others wait."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema import JobState, migration_job
from keyhouse.service.host import ServiceHost
from keyhouse.service.spec import ServiceContext
from keyhouse.store import Store, verify, version
from keyhouse.testing.faults import FaultyEngine
from keyhouse_audiobooks import SYSTEM, libraries
from keyhouse_audiobooks.schema import library_schema
from tests.support.engine_openers import OPENERS

SCHEMA = library_schema(tenants=False, sealed=False)


async def start(engine: Engine, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    async with ServiceHost() as host:
        await SYSTEM.service(
            ServiceContext(
                engine=engine, data=folder, metrics=CollectorRegistry(), settings={}, host=host
            )
        )


async def check(engine: Engine) -> None:
    store = Store(SCHEMA, engine, "main")
    assert await version(store) == SCHEMA.version
    assert [each async for each in verify(store)] == []


@pytest.mark.parametrize("name", [name for name in OPENERS if name in ("sqlite", "postgres")])
def test_three_processes_that_start_together_all_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the first ended the others, with all other systems of their processes."""
    monkeypatch.setattr(libraries, "LEASE_RETRY_SECONDS", 0.01)

    async def story() -> None:
        opener = OPENERS[name](tmp_path)
        engines = [await opener(SystemClock()) for _ in range(3)]
        try:
            slow = [FaultyEngine(engine, yields=True) for engine in engines]
            await asyncio.gather(
                *(start(engine, tmp_path / str(at)) for at, engine in enumerate(slow))
            )
            await check(engines[0])
        finally:
            for engine in engines:
                await engine.close()

    asyncio.run(story())


def test_the_lease_of_a_process_that_was_killed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "LEASE_RETRY_SECONDS", 0.0)

    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        store = Store(SCHEMA, engine, "main")
        assert SCHEMA.meta is not None
        now = clock.now()
        lease: Any = JobState(owner="killed", lease_until=now + 60_000, started_at=now)
        await store.put(SCHEMA.meta.job, lease, name=migration_job(1))
        starting = asyncio.create_task(start(engine, tmp_path / "data"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not starting.done()
        clock.advance(seconds=60)
        await starting
        await check(engine)
        await engine.close()

    asyncio.run(story())
