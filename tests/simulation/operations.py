"""Simulated background operations: several runners, each killed, cut off and started again.

An operation that resumes does each of its steps once, ends, and is lost by no crash. Two exclusive
ones never work at the same time.
"""

import asyncio

from keyhouse.errors import UnavailableError, UnknownOutcomeError
from keyhouse.schema import Counter, Schema, Space
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import DefaultOperationRecords
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Store, Transaction
from keyhouse.testing.simulation import SimulatedProcess, World

COUNT = Counter("count:{id:ulid}", name="count")
RECORDS = DefaultOperationRecords()
COUNTING = Schema("counting", COUNT, *RECORDS.records, space=Space("one"))

STEPS = 3
OPERATIONS = 4
KINDS = ("count", "exclusive", "exclusive")
LEASE_SECONDS = 10.0


async def operations(world: World) -> None:
    rows = Store(COUNTING, world.server.rows, "main")
    worked: list[str] = []
    """Exclusive operations in the order of their steps: each works without a break, since one that
    was started continues before another one starts."""

    async def count(task: OperationTask) -> None:
        async def add(tx: Transaction) -> None:
            await tx.add(COUNT, 1, id=task.id)

        for number in range(task.checkpoint or 0, STEPS):
            await task.commit(add, checkpoint=number + 1, current=number + 1, total=STEPS)
            if task.type == "exclusive":
                if task.id not in worked[-1:]:
                    worked.append(task.id)
                world.check(len(worked) == len(set(worked)), f"took turns: {worked}")
            await asyncio.sleep(world.random.uniform(0, 2))

    def runner(process: SimulatedProcess) -> BackgroundOperations:
        store = Store(COUNTING, process.engine, "main")
        kinds = {
            "count": OperationKind(run=count, resumes=True),
            "exclusive": OperationKind(run=count, resumes=True, exclusive=True),
        }
        return BackgroundOperations(
            store, RECORDS, kinds, name="counting", lease_seconds=LEASE_SECONDS, poll_seconds=2.0
        )

    submitted: list[str] = []
    rate = world.random.choice((2, 100))  # of submissions: seldom, or all at once

    async def submit(background: BackgroundOperations, name: str) -> None:
        for random in world.steps(name, OPERATIONS):
            await asyncio.sleep(random.expovariate(rate))
            try:
                submitted.append(await background.submit(random.choice(KINDS)))
            except (UnavailableError, UnknownOutcomeError) as error:
                world.note(name, type(error).__name__)

    async def live(name: str) -> None:
        while True:
            process = world.process(name)
            background = runner(process)
            running = process.spawn(background.run())
            if process.number <= 3:
                process.spawn(submit(background, f"{name}.{process.number}"))
            await asyncio.wait([running])
            await asyncio.sleep(1)

    living = [asyncio.create_task(live(name)) for name in ("p1", "p2", "p3")]
    await world.settle(0)
    for _ in range(60):  # a lease may have been extended by a clock that was set back
        waiting = [entry.record.id async for entry in rows.scan(RECORDS.run)]
        if not waiting:
            break
        await asyncio.sleep(5)
    for task in living:
        task.cancel()
    world.check(not waiting, f"operations that have not ended: {waiting}")
    for id in submitted:
        done = await rows.get(COUNT, id=id)
        world.check(done == STEPS, f"operation {id} did {done} of {STEPS} steps")
