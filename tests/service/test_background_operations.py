"""Background operations: the queue, progress and cancellation."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.errors import (
    BusyError,
    ConflictError,
    RecordError,
    UsageError,
)
from keyhouse.nats.bus import Bus
from keyhouse.nats.connection import connect
from keyhouse.schema import Schema, Space
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import (
    DefaultOperationRecords,
    OperationRun,
    RunStatus,
)
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Store, Transaction
from keyhouse_audiobooks.schema import NEXT_SEQ, OPERATION, OPERATION_LOG
from tests.service.support.background import (
    COUNT,
    LIBRARY,
    LIBRARY_SCHEMA,
    RECORDS,
    SCHEMA,
    Gate,
    count,
    counting,
    lines,
    run,
    running,
    store_on,
)
from tests.support.engine_openers import OPENERS
from tests.support.nats_servers import nats_server
from tests.support.polling import loop_turns, until


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
        await until(lambda: task.is_cancelled)
        with suppress(Exception):
            await task.commit(current=1)

    async def scenario(engine: Engine) -> None:
        store = store_on(engine)
        operations = counting(store, stubborn=OperationKind(run=stubborn))
        async with running(operations):
            id = await operations.submit("stubborn")
            await until(lambda: operations.running)
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
            await until(lambda: gate.runs >= 2)
            await loop_turns(50)
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
                await asyncio.sleep(0)
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


class OneAtATime(DefaultOperationRecords):
    """Rejects the second operation."""

    async def write(
        self, tx: Transaction, run: OperationRun, status: RunStatus, **options: Any
    ) -> None:
        if run.input == "second":
            raise ConflictError("Another one runs.")
        await super().write(tx, run, status, **options)


def test_an_operation_that_is_started_runs_here_and_gives_its_result_or_error() -> None:
    async def scenario(engine: Engine) -> None:
        async def double(task: OperationTask) -> int:
            await task.commit(total=1)
            if task.input < 0:
                raise UsageError("It is negative.")
            return int(task.input) * 2

        records = OneAtATime()
        store = store_on(engine, Schema("doubling", COUNT, *records.records, space=Space("one")))
        kinds = {"double": OperationKind(run=double)}
        operations = BackgroundOperations(store, records, kinds, name="doubling")
        assert await (await operations.start("double", 21)) == 42  # without a runner
        with pytest.raises(UsageError, match="negative"):
            await (await operations.start("double", -1))
        await until(lambda: not operations.tasks)
        ends = [entry.record async for entry in store.scan(records.status)]
        assert [each.status for each in ends] == ["completed", "failed"]
        assert ends[1].error == "It is negative."
        with pytest.raises(ConflictError):
            await operations.start("double", "second")
        assert await store.count(records.run) == 0

    run(scenario)


def test_a_submission_wakes_the_runners_of_other_processes() -> None:
    """They looked every ten seconds only."""

    async def scenario(engine: Engine) -> None:
        store, url = store_on(engine), nats_server().url
        async with connect(url) as one, connect(url) as two:
            submitting, other = (
                BackgroundOperations(
                    store,
                    RECORDS,
                    {"count": OperationKind(run=count)},
                    name="counting",
                    poll_seconds=3_600,
                    bus=Bus(client),
                )
                for client in (one, two)
            )

            async def has_run() -> bool:
                """Submit again until the other process has subscribed."""
                await submitting.submit("count", 1)
                return await store.count(COUNT) > 0

            async with running(other):
                await until(has_run, retry=BusyError)

    run(scenario)
