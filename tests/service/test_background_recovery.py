"""Background operations of several processes: leases, takeover, shutdown, resuming after a kill."""

import asyncio
import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import (
    UnavailableError,
    UnknownOutcomeError,
)
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.limits import OPERATION_ATTEMPTS_MAX
from keyhouse.store import Store, Transaction
from keyhouse.testing.faults import FaultyEngine, Killed, die, fail, meanwhile
from keyhouse_audiobooks.schema import OPERATION, OPERATION_LOG
from tests.serve.support.serve_process import environment
from tests.service.support.background import (
    COUNT,
    LIBRARY,
    LIBRARY_SCHEMA,
    RECORDS,
    RESUMED,
    SCHEMA,
    Gate,
    count,
    counting,
    lines,
    run,
    running,
    store_on,
)
from tests.sizes import size
from tests.support.polling import loop_turns, until
from tests.support.program import PipedProcess


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
                await loop_turns(50)
                status = await store.get(RECORDS.status, id=id)
                assert status is not None and status.status == "running"
                gate.resume.set()
                await second.wait(id, poll_seconds=0.01)
        assert gate.runs == 1

    run(scenario)


def test_a_long_chunk_keeps_its_lease() -> None:
    async def scenario(engine: Engine) -> None:
        store, gate = store_on(engine), Gate()
        kind = OperationKind(run=gate, resumes=True)
        first = counting(store, lease_seconds=0.3, gate=kind)
        second = counting(store_on(engine), lease_seconds=0.3, gate=kind)
        async with running(first):
            id = await first.submit("gate")
            await gate.started.wait()
            async with running(second):
                for _ in range(5):  # longer than a lease, whose clock waits for each renewal
                    before = await store.get(RECORDS.run, id=id)
                    clock.advance(seconds=0.2)

                    async def is_renewed() -> bool:
                        return await store.get(RECORDS.run, id=id) != before  # noqa: B023

                    await until(is_renewed)
                assert gate.runs == 1
                gate.resume.set()
                await second.wait(id, poll_seconds=0.01)
        assert gate.runs == 1

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


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

            async def has_committed() -> bool:
                run = await store.get(RECORDS.run, id=id)
                return run is not None and run.chunks > 0

            await until(has_committed)
            clock.advance(seconds=61)
            async with running(other):
                await other.wait(id, poll_seconds=0.01)
                ended = await store.row(f"operation:{id}")
                gate.resume.set()
                await until(lambda: not stalled.running)
        assert await store.row(f"operation:{id}") == ended
        assert await lines(store, id) == ["waiting", "waiting", "done"]

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_a_runner_takes_over_when_a_lease_expires_and_not_at_its_next_look() -> None:
    """The work of a killed runner waited for its lease of 60 seconds, then for the next look."""

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        kinds = {"count": OperationKind(run=count, resumes=True)}
        other = BackgroundOperations(store, RECORDS, kinds, name="counting", poll_seconds=3_600)
        id = await other.submit("count", 2)
        await store.transact(partial(_own, id, store.engine.clock.now() + 400))
        async with running(other):
            await other.wait(id, poll_seconds=0.01)
        assert await lines(store, id) == ["counted 0", "counted 1", "done"]

    run(scenario)


async def _own(id: str, lease_until: int, tx: Transaction) -> None:
    """Take an operation over as a process that is killed before it renews its lease."""
    operation = await tx.get(RECORDS.run, id=id)
    assert operation is not None
    operation.owner, operation.lease_until = "killed", lease_until
    await tx.put(RECORDS.run, operation)


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
        status = await store.get(RECORDS.status, id=ids[0])
        assert status is not None and status.status == "pending"
        logged = [entry.record.message async for entry in store.scan(RECORDS.log, id=ids[0])]
        assert logged[1:] == ["The service stops: the operation continues at its next start."]
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
    for task in [runner, *operations.tasks]:
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
        messages = [entry.record.message async for entry in found]
        return [message for message in messages if message != RESUMED]
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
            await asyncio.gather(runner, *operations.tasks)
        store = store_on(engine)
        assert await store.get(RECORDS.run, id=id) is not None
        again = counting(store, gate=kinds["gate"])
        async with running(again):
            await loop_turns(50)
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
                lambda tx: counting(store).claim(store, id, store.ids.new(), [], tx)
            )
            assert claimed is not None and claimed.attempts == attempt
            clock.advance(seconds=61)
        operations = counting(store)
        async with running(operations):
            await operations.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.status, status.error) == ("failed", "interrupted")
        logged = [entry.record.message async for entry in store.scan(RECORDS.log, id=id)]
        assert logged == [RESUMED] * (OPERATION_ATTEMPTS_MAX - 1)

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_a_cancelled_operation_whose_process_died_is_cancelled_not_resumed() -> None:
    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store)
        id = await operations.submit("count", 3)
        await store.transact(lambda tx: operations.claim(store, id, store.ids.new(), [], tx))
        assert await operations.cancel(id)
        clock.advance(seconds=61)
        async with running(operations):
            await operations.wait(id, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=id)
        assert status is not None and (status.error, status.current) == ("cancelled", 0)

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_an_exclusive_operation_waits_for_one_whose_runner_is_cut_off() -> None:
    """Another one started when the lease of the first had expired; then its runner came back, and
    both ran. Found by the simulation."""

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store, alone=OperationKind(run=count, resumes=True, exclusive=True))
        waiting, started = await operations.submit("alone", 3), await operations.submit("alone", 3)

        async def claim(id: str, *others: str) -> bool:
            owner = store.ids.new()
            work = partial(operations.claim, store, id, owner, [*others])
            return await store.transact(work) is not None

        assert await claim(started)  # `waiting` was not listed yet
        clock.advance(seconds=61)
        assert not await claim(waiting, started)
        assert await claim(started, waiting)

    clock = ManualClock()
    run(scenario, MemoryEngine(clock))


def test_an_exclusive_operation_is_given_back_if_a_later_one_was_claimed_meanwhile() -> None:
    """A second operation was submitted and claimed by another process after the first process had
    listed what waits, and both ran. Found by the simulation."""

    async def scenario(engine: Engine) -> None:
        other = store_on(engine)
        kind = OperationKind(run=count, resumes=True, exclusive=True)
        theirs = counting(other, alone=kind)
        first = await theirs.submit("alone", 1)

        async def submit_and_claim() -> None:
            second = await theirs.submit("alone", 1)
            work = partial(theirs.claim, other, second, other.ids.new(), [])
            assert await other.transact(work) is not None
            faulty.faults.clear()

        faulty = FaultyEngine(engine, meanwhile(None, submit_and_claim, call="commit"))
        store = store_on(faulty)
        operations = counting(store, alone=kind)
        async with running(operations):
            await until(lambda: not faulty.faults)
            await loop_turns(200)
            status = await store.get(RECORDS.status, id=first)
            assert status is not None and status.current == 0
            clock.advance(seconds=61)  # the other process has died
            await operations.wait(first, poll_seconds=0.01)
        status = await store.get(RECORDS.status, id=first)
        assert status is not None and status.status == "completed"

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
@pytest.mark.soak
def test_an_operation_continues_after_its_process_is_killed_again_and_again(tmp_path: Path) -> None:
    number, path = size(150, 400, 400), str(tmp_path / "rows.db")
    chance = random.Random(7)
    module = "tests.service.support.counting_process"
    work, kills = str(number), 0
    counted: int | None = 0
    while counted is not None:
        end = counted + chance.randrange(5, 40)
        with PipedProcess(module, path, work, cwd=tmp_path, environment=environment()) as process:
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
