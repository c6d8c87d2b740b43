"""Background operations: the queue, progress, cancellation, leases, and recovery after a kill at
every step.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import (
    BusyError,
    RecordError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.limits import OPERATION_ATTEMPTS_MAX
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Store
from keyhouse.systems.audiobooks.schema import NEXT_SEQ, OPERATION, OPERATION_LOG
from keyhouse.testing.faults import FaultyEngine, Killed, die, fail
from tests.serve.support.serve_process import environment
from tests.service.support.background import (
    COUNT,
    LIBRARY,
    LIBRARY_SCHEMA,
    RECORDS,
    SCHEMA,
    count,
    counting,
    lines,
    running,
    store_on,
)
from tests.support.engine_openers import OPENERS

Scenario = Callable[[Engine], Coroutine[Any, Any, None]]


def run(scenario: Scenario, engine: Engine | None = None) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario(engine or MemoryEngine())

    asyncio.run(limited())


class Gate:
    """An operation that waits in each chunk until it is let on."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.resume = asyncio.Event()
        self.runs = 0

    async def __call__(self, task: OperationTask) -> None:
        self.runs += 1
        self.started.set()
        task.log("waiting")
        await task.commit(total=2)
        await self.resume.wait()
        await task.commit(current=1, checkpoint="half")
        task.log("done")


@pytest.mark.parametrize("name", OPENERS)
def test_an_operation_runs_with_progress_and_log_on_every_engine(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = await OPENERS[name](tmp_path)(SystemClock())
        store = store_on(engine)
        operations = counting(store)
        async with running(operations):
            id = await operations.submit("count", 3, created_by="ann")
            await operations.wait(id, poll_seconds=0.02)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None
        assert (status.status, status.error, status.created_by) == ("completed", None, "ann")
        assert (status.current, status.total) == (3, 3)
        assert status.queued_at <= (status.started_at or "") <= (status.ended_at or "")
        assert await lines(store, id) == ["counted 0", "counted 1", "counted 2", "done"]
        assert await store.get(COUNT, id=id) == 3
        assert await store.count(RECORDS.run) == 0
        await engine.close()

    asyncio.run(scenario())


def test_the_rows_of_a_systems_document_are_written() -> None:
    async def scenario(engine: Engine) -> None:
        store = store_on(engine, LIBRARY_SCHEMA)
        operations = counting(store, LIBRARY)
        async with running(operations):
            id = await operations.submit("count", 2, created_by="ann")
            pending = await store.get(OPERATION, id=id)
            assert pending is not None and pending.status in ("pending", "running", "completed")
            await operations.wait(id, poll_seconds=0.01)
        ended = await store.get(OPERATION, id=id)
        assert ended is not None
        assert (ended.status, ended.progress.current, ended.progress.total) == ("completed", 2, 2)
        log = [entry async for entry in store.scan(OPERATION_LOG, operation_id=id)]
        assert [(each.record.seq, each.record.message) for each in log] == [
            (0, "counted 0"),
            (1, "counted 1"),
            (2, "done"),
        ]
        assert await store.get(NEXT_SEQ, operation_id=id) == 3

    run(scenario)


# Failure and cancellation


def test_an_operation_that_raises_has_failed_with_the_reason() -> None:
    async def rejected(task: OperationTask) -> None:
        task.log("so far")
        raise RecordError("The folder is empty.", folder="x")

    async def broken(task: OperationTask) -> None:
        raise ValueError("secret")

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(
            store, rejected=OperationKind(run=rejected), broken=OperationKind(run=broken)
        )
        registry = CollectorRegistry()
        registry.register(operations)
        async with running(operations):
            ids = [await operations.submit(type) for type in ("rejected", "broken")]
            for id in ids:
                await operations.wait(id, poll_seconds=0.01)
        one = await store.get(RECORDS.status, id=ids[0])
        two = await store.get(RECORDS.status, id=ids[1])
        assert one is not None and two is not None
        assert (one.status, one.error) == ("failed", "The folder is empty. (folder='x')")
        assert (two.status, two.error) == ("failed", "Unhandled exception: ValueError.")
        assert await lines(store, ids[0]) == ["so far"]
        page = generate_latest(registry).decode()
        assert 'counting_operations_total{outcome="failed",type="broken"} 1.0' in page

    run(scenario)


def test_a_cancelled_operation_commits_no_further_chunk() -> None:
    async def scenario(engine: Engine) -> None:
        store, gate = store_on(engine), Gate()
        operations = counting(store, gate=OperationKind(run=gate))
        async with running(operations):
            id = await operations.submit("gate")
            await gate.started.wait()
            assert await operations.cancel(id)
            gate.resume.set()
            await operations.wait(id, poll_seconds=0.01)
            assert not await operations.cancel(id)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None
        assert (status.status, status.error, status.current) == ("failed", "cancelled", 0)

    run(scenario)


def test_a_waiting_operation_is_cancelled_at_once() -> None:
    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store)
        id = await operations.submit("count", 1)
        assert await operations.cancel(id)
        assert not await operations.cancel(id)
        assert not await operations.cancel(store.ids.new())
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.status, status.error) == ("failed", "cancelled")

    run(scenario)


def test_a_function_that_ignores_its_cancellation_is_still_cancelled() -> None:
    async def stubborn(task: OperationTask) -> None:
        while not task.is_cancelled:
            await asyncio.sleep(0.001)
        with suppress(Exception):
            await task.commit(current=1)

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store, stubborn=OperationKind(run=stubborn))
        async with running(operations):
            id = await operations.submit("stubborn")
            while not operations._running:
                await asyncio.sleep(0.001)
            await operations.cancel(id)
            await operations.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.error, status.current) == ("cancelled", 0)

    run(scenario)


# The queue


def test_operations_wait_in_order_and_a_bounded_number_runs() -> None:
    async def scenario(engine: Engine) -> None:
        store, gate = store_on(engine), Gate()
        operations = counting(store, gate=OperationKind(run=gate))
        async with running(operations):
            ids = [await operations.submit("gate") for _ in range(4)]
            while gate.runs < 2:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert gate.runs == 2
            gate.resume.set()
            for id in ids:
                await operations.wait(id, poll_seconds=0.01)
        for id in ids:
            status = await store.get(RECORDS.status, id=id)
            assert status is not None and status.status == "completed"

    run(scenario)


def test_too_many_operations_are_rejected() -> None:
    async def scenario(engine: Engine) -> None:
        operations = BackgroundOperations(
            store_on(engine),
            RECORDS,
            {"count": OperationKind(run=count)},
            name="x",
            pending_max=2,
        )
        for _ in range(2):
            await operations.submit("count", 1)
        with pytest.raises(BusyError, match="Too many operations wait"):
            await operations.submit("count", 1)
        with pytest.raises(UsageError, match="No such operation"):
            await operations.submit("paint")

    run(scenario)


def test_an_exclusive_operation_never_runs_beside_another_of_its_type() -> None:
    async def scenario(engine: Engine) -> None:
        inside = most = 0

        async def alone(task: OperationTask) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            for number in range(3):
                await task.commit(current=number)
                await asyncio.sleep(0.002)
            inside -= 1

        kind = OperationKind(run=alone, exclusive=True)
        stores = [store_on(engine) for _ in range(3)]
        processes = [counting(store, alone=kind) for store in stores]
        async with running(*processes):
            ids = [await processes[number % 3].submit("alone") for number in range(6)]
            for id in ids:
                await processes[0].wait(id, poll_seconds=0.01)
        assert most == 1

    run(scenario)


def test_the_log_of_an_operation_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyhouse.service.background_task.OPERATION_LINES_MAX", 5)

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store)
        async with running(operations):
            id = await operations.submit("count", 20)
            await operations.wait(id, poll_seconds=0.01)
        assert len(found := await lines(store, id)) == 5
        assert found[-1] == "The log is full: further lines are not kept."

    run(scenario)


# Several processes


def test_one_process_runs_each_operation_and_others_leave_it_alone() -> None:
    """A second process that started would have failed the first one's work."""

    async def scenario(engine: Engine) -> None:
        store, gate = store_on(engine), Gate()
        first = counting(store, gate=OperationKind(run=gate))
        second = counting(store_on(engine), gate=OperationKind(run=gate))
        async with running(first):
            id = await first.submit("gate")
            await gate.started.wait()
            async with running(second):
                await asyncio.sleep(0.1)
                status = await store.get(RECORDS.status, id=id)
                assert status is not None and status.status == "running"
                gate.resume.set()
                await second.wait(id, poll_seconds=0.01)
        assert gate.runs == 1

    run(scenario)


def test_a_long_chunk_keeps_its_lease() -> None:
    async def scenario(engine: Engine) -> None:
        gate = Gate()
        kind = OperationKind(run=gate, resumes=True)
        first = counting(store_on(engine), lease_seconds=0.3, gate=kind)
        second = counting(store_on(engine), lease_seconds=0.3, gate=kind)
        async with running(first):
            id = await first.submit("gate")
            await gate.started.wait()
            async with running(second):
                await asyncio.sleep(1)
                assert gate.runs == 1
                gate.resume.set()
                await second.wait(id, poll_seconds=0.01)
        assert gate.runs == 1

    run(scenario)


def test_a_runner_that_stalled_commits_nothing_after_another_took_over() -> None:
    async def scenario(engine: Engine) -> None:
        store, gate = store_on(engine), Gate()
        stalled = counting(store, gate=OperationKind(run=gate, resumes=True))
        other_gate = Gate()
        other_gate.resume.set()
        other = counting(store_on(engine), gate=OperationKind(run=other_gate, resumes=True))
        async with running(stalled):
            id = await stalled.submit("gate")
            await gate.started.wait()
            while (await store.get(RECORDS.run, id=id)).chunks == 0:  # type: ignore[union-attr]
                await asyncio.sleep(0.001)
            clock.advance(seconds=61)
            async with running(other):
                await other.wait(id, poll_seconds=0.01)
                ended = await store.row(f"operation:{id}")
                gate.resume.set()
                while stalled._running:
                    await asyncio.sleep(0.001)
        assert await store.row(f"operation:{id}") == ended
        assert await lines(store, id) == ["waiting", "waiting", "done"]

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


# Shutdown


def test_shutdown_gives_a_resumable_operation_back_and_interrupts_others() -> None:
    async def scenario(engine: Engine) -> None:
        store, gates = store_on(engine), [Gate(), Gate()]
        operations = counting(
            store,
            one=OperationKind(run=gates[0], resumes=True),
            two=OperationKind(run=gates[1]),
        )
        async with running(operations):
            ids = [await operations.submit(type) for type in ("one", "two")]
            for gate in gates:
                await gate.started.wait()
        waiting = await store.get(RECORDS.run, id=ids[0])
        assert waiting is not None and waiting.owner == ""
        interrupted = await store.get(RECORDS.status, id=ids[1])
        assert interrupted is not None
        assert (interrupted.status, interrupted.error) == ("failed", "interrupted")
        gates[0].resume.set()
        async with running(operations):
            await operations.wait(ids[0], poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=ids[0])
        assert status is not None and status.status == "completed" and gates[0].runs == 2

    run(scenario)


# Crashes


async def _until_killed(engine: Engine, schema: Any, records: Any) -> str | None:
    """Submit and run an operation on an engine that dies; return its id if it was submitted."""
    store = Store(schema, engine, "main")
    operations = counting(store, records)
    id = None
    runner = asyncio.create_task(operations.run())
    try:
        id = await operations.submit("count", 3)
        while not runner.done() and await store.get(records.run, id=id) is not None:
            await asyncio.sleep(0)
    except Killed:
        pass
    runner.cancel()
    for task in [runner, *operations._tasks]:
        with suppress(BaseException):
            await task
    return id


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("schema", "records"), [(SCHEMA, RECORDS), (LIBRARY_SCHEMA, LIBRARY)], ids=["own", "document"]
)
def test_an_operation_killed_at_every_step_ends_exactly_once(
    schema: Any, records: Any, after: bool
) -> None:
    async def one(step: int) -> bool:
        """Kill at one call of the engine; return False if the operation ended before it."""
        clock = ManualClock()
        engine = MemoryEngine(clock)
        id = await _until_killed(FaultyEngine(engine, die(step, after=after)), schema, records)
        store = Store(schema, engine, "main")
        left = [entry.record.id async for entry in store.scan(records.run)]
        clock.advance(seconds=61)
        operations = counting(store, records)
        async with running(operations):
            for each in left:
                await operations.wait(each, poll_seconds=0)
        if id is None and not left:
            return True  # never submitted
        [done] = [entry.record.id async for entry in store.scan(_status(records))]
        assert id in (None, done)
        status = await store.get(_status(records), id=done)
        assert status is not None and (status.status, status.error) == ("completed", None)
        assert await store.get(COUNT, id=done) == 3
        assert await _messages(store, records, done) == [
            "counted 0",
            "counted 1",
            "counted 2",
            "done",
        ]
        return bool(left)

    async def every_step(_: Engine) -> None:
        steps = 0
        while await one(steps + 1) or steps < 8:
            steps += 1
        assert steps > 12, "the kills did not reach the operation"

    run(every_step)


def _status(records: Any) -> Any:
    return OPERATION if records is LIBRARY else RECORDS.status


async def _messages(store: Store, records: Any, id: str) -> list[str]:
    if records is LIBRARY:
        found = store.scan(OPERATION_LOG, operation_id=id)
        return [entry.record.message async for entry in found]
    return await lines(store, id)


def test_an_operation_that_does_not_resume_is_interrupted_after_a_crash() -> None:
    async def scenario(engine: Engine) -> None:
        gate = Gate()
        kinds = {"gate": OperationKind(run=gate)}
        dying = FaultyEngine(engine, die(12))
        operations = counting(Store(SCHEMA, dying, "main"), gate=kinds["gate"])
        runner = asyncio.create_task(operations.run())
        id = await operations.submit("gate")
        await gate.started.wait()
        gate.resume.set()
        with suppress(BaseException):
            await asyncio.gather(runner, *operations._tasks)
        store = store_on(engine)
        assert await store.get(RECORDS.run, id=id) is not None
        again = counting(store, gate=kinds["gate"])
        async with running(again):
            await asyncio.sleep(0.05)
            assert await store.get(RECORDS.run, id=id) is not None  # its lease is still valid
            clock.advance(seconds=61)
            await again.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.status, status.error) == ("failed", "interrupted")
        assert gate.runs == 1

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_an_operation_whose_process_dies_each_time_is_interrupted_at_last() -> None:
    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        id = await counting(store).submit("count", 3)
        for attempt in range(1, OPERATION_ATTEMPTS_MAX + 1):
            claimed = await store.transact(
                lambda tx: counting(store)._claim(id, store.ids.new(), [], tx)
            )
            assert claimed is not None and claimed.attempts == attempt
            clock.advance(seconds=61)
        operations = counting(store)
        async with running(operations):
            await operations.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.status, status.error) == ("failed", "interrupted")

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_a_cancelled_operation_whose_process_died_is_cancelled_not_resumed() -> None:
    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store)
        id = await operations.submit("count", 3)
        await store.transact(lambda tx: operations._claim(id, store.ids.new(), [], tx))
        assert await operations.cancel(id)
        clock.advance(seconds=61)
        async with running(operations):
            await operations.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.error, status.current) == ("cancelled", 0)

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


@pytest.mark.parametrize("error", [UnavailableError, UnknownOutcomeError])
def test_chunks_survive_an_engine_that_is_away_and_count_once(error: type[Exception]) -> None:
    async def scenario(engine: Engine) -> None:
        for at in range(3, 8):
            after = error is UnknownOutcomeError
            faulty = FaultyEngine(engine, fail(at, error, after=after))
            store = Store(SCHEMA, faulty, f"space{at}")
            operations = counting(store)
            async with running(operations):
                id = await operations.submit("count", 3)
                await operations.wait(id, poll_seconds=0.01)
            status = await store.get(RECORDS.status, id=id)
            assert status is not None and status.status == "completed", (at, status)
            assert await store.get(COUNT, id=id) == 3
            assert len(await lines(store, id)) == 4

    run(scenario)


@pytest.mark.long
def test_an_operation_continues_after_its_process_is_killed_again_and_again(tmp_path: Path) -> None:
    number, path = 400, str(tmp_path / "rows.db")
    chance = random.Random(7)
    command = [sys.executable, "-m", "tests.service.support.counting_process", path]
    work, kills = str(number), 0
    counted: int | None = 0
    while counted is not None:
        end = counted + chance.randrange(5, 40)
        with subprocess.Popen(
            [*command, work], stdout=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            work = process.stdout.readline().strip()
            seen = (int(line) for line in process.stdout)
            counted = next((count for count in seen if count >= end), None)
            if counted is not None:
                process.kill()
                kills += 1

    async def check() -> None:
        engine = SqliteEngine.open(path)
        store = store_on(engine)
        status = await store.get(RECORDS.status, id=work)
        assert status is not None and (status.status, status.current) == ("completed", number)
        assert await store.get(COUNT, id=work) == number
        assert await lines(store, work) == [*(f"counted {n}" for n in range(number)), "done"]
        assert await store.count(RECORDS.run) == 0
        await engine.close()

    assert kills > 2, "the process was hardly killed"
    asyncio.run(check())


def test_operations_of_several_spaces_are_found() -> None:
    async def scenario(engine: Engine) -> None:
        def store(space: str) -> Store:
            return Store(SCHEMA, engine, space)

        operations = BackgroundOperations(
            store,
            RECORDS,
            {"count": OperationKind(run=count)},
            name="many",
            spaces=engine.spaces,
            poll_seconds=0.01,
        )
        ids = {space: await operations.submit("count", 2, space=space) for space in ("a", "b", "c")}
        async with running(operations):
            for space, id in ids.items():
                await operations.wait(id, space=space, poll_seconds=0.01)
        for space, id in ids.items():
            assert await store(space).get(COUNT, id=id) == 2

    run(scenario)
