"""Simulated jobs: processes that migrate, fold and prune the same space, and are killed at it.

Every book is migrated exactly once, every event counts once, however often the work is interrupted.
"""

import asyncio
from collections.abc import Awaitable, Callable

from keyhouse.errors import ContentionError, LeaseError, UnavailableError, UnknownOutcomeError
from keyhouse.store import Store, Transaction, fold, migrate, prune, verify
from keyhouse.testing.simulation import SimulatedProcess, World
from tests.store.support.planted_bug_checks import (
    BOOK,
    LIBRARY,
    MINUTES,
    VISIT,
    VISITS,
    Visit,
    book,
)

RECORDS = 7
"""Books and visits."""

INTERRUPTED = (LeaseError, ContentionError, UnavailableError, UnknownOutcomeError)
"""Run the job again later."""


async def jobs(world: World) -> None:
    rows = Store(LIBRARY, world.server.rows, "l")

    async def import_visit(tx: Transaction) -> None:
        await tx.restore(VISIT, Visit(10), door="d", at=rows.ids.new())  # past the log

    for number in range(RECORDS):
        await rows.put(BOOK, book(f"b{number}", f"t{number}"))

    async def work(process: SimulatedProcess, name: str) -> None:
        store = Store(LIBRARY, process.engine, "l")
        await until_done(lambda: migrate(store))
        for random in world.steps(name, 4):
            job = random.choice((fold_all, prune_all))
            try:
                await job(store)
            except INTERRUPTED as error:
                world.note(process.name, f"{job.__name__}: {type(error).__name__}")
            await asyncio.sleep(random.expovariate(1))

    async def live(name: str) -> None:
        for life in range(4):
            process = world.process(name)
            await asyncio.wait([process.spawn(work(process, f"{name}.{life}"))])
            if process.is_alive:
                return
            await asyncio.sleep(1)

    async def import_visits() -> None:
        for _ in range(RECORDS):
            await rows.transact(import_visit)
            await asyncio.sleep(world.random.expovariate(1))

    async with asyncio.TaskGroup() as living:
        living.create_task(import_visits())
        for name in ("p1", "p2", "p3"):
            living.create_task(live(name))
    await world.settle()
    store = Store(LIBRARY, world.process("checker").engine, "l")
    await migrate(store)
    copies = [entry.record.copies async for entry in store.scan(BOOK)]
    world.check(copies == [1] * RECORDS, f"migrated to {copies} copies")
    await fold(store, VISIT, door="d")
    state, minutes = await store.get(VISITS, door="d"), await store.get(MINUTES)
    count = 0 if state is None else state.count
    world.check(minutes == 10 * count, f"{count} visits of 10 minutes are {minutes} minutes")
    world.check(count == RECORDS, f"{count} visits are counted of {RECORDS}")
    findings = [f"{each.kind} {each.key}" async for each in verify(store)]
    world.check(not findings, f"verify: {findings}")


async def until_done(job: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await job()
        except INTERRUPTED:
            await asyncio.sleep(5)
        else:
            return


async def fold_all(store: Store) -> None:
    await fold(store, VISIT, door="d")


async def prune_all(store: Store) -> None:
    async for _ in prune(store, VISIT, before=store.engine.clock.now()):
        pass
