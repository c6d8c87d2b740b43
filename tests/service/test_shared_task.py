"""A task that processes share runs in one of them at a time, and once in each interval."""

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from keyhouse import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import KeyFieldError
from keyhouse.schema import Record, Schema, Space
from keyhouse.schema.space import RESERVED_SPACES, SERVICE_SPACE
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask
from keyhouse.store import Store, stored_spaces
from tests.service.support.shared_task_process import share
from tests.support.engine_openers import OPENERS
from tests.support.polling import until, wait_until

PROCESSES = multiprocessing.get_context("forkserver")
SHARED = [kind for kind in OPENERS if kind not in ("memory", "rocksdb")]


class Process:
    """A process as its tasks see it: what it ran, and what it adopted."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self.runs = 0
        self.adopted: list[Any] = []
        self.task = SharedTask(
            engine,
            "count",
            300,
            OperationLog("test", 1),
            export=lambda: {"runs": self.runs},
            adopt=self.adopted.append,
            **options,
        )

    async def look(self) -> float:
        return await self.task.look(self._work)

    async def _work(self) -> float:
        self.runs += 1
        return 300


@pytest.mark.parametrize("kind", SHARED)
def test_one_process_runs_it_in_an_interval_and_the_others_adopt_the_result(
    kind: str, tmp_path: Path
) -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = await OPENERS[kind](tmp_path)(clock)
        first, second = Process(engine), Process(engine)
        assert await first.look() == await second.look() == 300
        assert (first.runs, second.runs) == (1, 0)
        assert (first.adopted, second.adopted) == ([], [{"runs": 1}])
        clock.advance(seconds=200)
        assert await first.look() == await second.look() == 100
        assert second.adopted == [{"runs": 1}]
        clock.advance(seconds=100)
        assert await second.look() == await first.look() == 300
        assert (first.runs, second.runs) == (1, 1)
        assert [space async for space in stored_spaces(engine)] == []
        await engine.close()

    asyncio.run(story())


def test_a_row_that_no_run_can_have_written_counts_as_due(tmp_path: Path) -> None:
    """A host whose clock was a day ahead must not stop the task for a day."""

    async def story() -> None:
        clock = ManualClock()
        engine = SqliteEngine.open(tmp_path / "rows.db", clock=clock)
        day = clock.now() + 86_400_000
        for number, row in enumerate(
            [b"of another program", b'{"due":%d}' % day, b'{"lease_until":%d}' % day]
        ):
            await engine.commit(SERVICE_SPACE, Batch(puts=(Put("task:count", row),)))
            process = Process(engine)
            assert (await process.look(), process.runs) == (300, 1), number
        await engine.close()

    asyncio.run(story())


def test_an_engine_of_one_process_has_no_row() -> None:
    async def story() -> None:
        engine, ran = MemoryEngine(), asyncio.Event()

        async def work() -> float:
            ran.set()
            return 300

        task = SharedTask(engine, "count", 300, OperationLog("test", 1))
        running = asyncio.create_task(task.run(work))
        await ran.wait()
        running.cancel()
        assert [space async for space in engine.spaces()] == []

    asyncio.run(story())


@pytest.mark.parametrize("space", sorted(RESERVED_SPACES))
def test_a_tenant_cannot_have_the_name_of_a_reserved_space(space: str) -> None:
    """Its rows would be in no backup."""
    schema = Schema("any", Record(Any, "{key}", name="item"), space=Space("a tenant"))
    with pytest.raises(KeyFieldError, match="its own rows"):
        Store(schema, MemoryEngine(), space)


def test_processes_share_a_task_and_one_continues_for_another_killed_with_9(
    tmp_path: Path,
) -> None:
    """Each process swept, scanned and recovered by itself before."""
    rows, log, hang = tmp_path / "rows.db", tmp_path / "log", tmp_path / "hang"
    log.touch()
    processes = {}
    for _ in range(3):
        process = PROCESSES.Process(target=share, args=(str(rows), str(log), str(hang)))
        process.start()
        processes[process.pid] = process

    def runs() -> list[int]:
        return [int(line) for line in log.read_text().split()]

    async def renewals(count: int) -> None:
        """Wait until the lease of the run was renewed so often."""
        engine, seen = SqliteEngine.open(rows), set[bytes]()

        async def is_renewed() -> bool:
            [row] = await engine.read(SERVICE_SPACE, ["task:test"])
            seen.add(b"" if row is None else row.value)
            return len(seen) > count

        await until(is_renewed)
        await engine.close()

    try:
        wait_until(lambda: len(runs()) > 20)
        hang.touch()
        asyncio.run(renewals(5))  # those of runs before it hung among them
        asyncio.run(renewals(5))  # more than two leases
        hung = runs()
        asyncio.run(renewals(3))
        assert runs() == hung, "another process ran it too"
        os.kill(hung[-1], signal.SIGKILL)
        hang.unlink()
        wait_until(lambda: len(runs()) > len(hung) + 5)
        assert hung[-1] not in runs()[len(hung) :]
    finally:
        for process in processes.values():
            process.kill()
            process.join()
