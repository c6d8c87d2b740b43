"""Operations for tests: they count to a number, one chunk each, in rows of the default records or
of the audiobook library.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema import Counter, Schema, Space
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import DefaultOperationRecords, OperationRun, RunStatus
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Store, Transaction
from keyhouse_audiobooks.files.operations import LibraryOperationRecords
from keyhouse_audiobooks.schema import NEXT_SEQ, OPERATION, OPERATION_LOG

COUNT = Counter("count:{id:ulid}", name="count")
RECORDS = DefaultOperationRecords()
SCHEMA = Schema("counting", COUNT, *RECORDS.records, space=Space("one"))


class LibraryOperations(LibraryOperationRecords):
    """The rows of the audiobook document, which has its own types: counting is a scan there."""

    async def write(
        self, tx: Transaction, run: OperationRun, status: RunStatus, **options: Any
    ) -> None:
        await super().write(tx, msgspec.structs.replace(run, type="scan"), status, **options)


LIBRARY = LibraryOperations()
LIBRARY_SCHEMA = Schema(
    "library",
    COUNT,
    OPERATION,
    OPERATION_LOG,
    NEXT_SEQ,
    LIBRARY.run,
    space=Space("a library"),
    overlaps=((OPERATION, NEXT_SEQ), (NEXT_SEQ, OPERATION)),
)


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


async def count(task: OperationTask) -> None:
    """Count to the input, one chunk each, from the checkpoint on."""

    async def add(tx: Transaction) -> None:
        await tx.add(COUNT, 1, id=task.id)

    for number in range(task.checkpoint or 0, task.input):
        task.log(f"counted {number}")
        await task.commit(add, checkpoint=number + 1, current=number + 1, total=task.input)
    task.log("done")


def store_on(engine: Engine, schema: Schema = SCHEMA) -> Store:
    return Store(schema, engine, "main")


def counting(
    store: Store,
    records: DefaultOperationRecords | LibraryOperations = RECORDS,
    *,
    lease_seconds: float = 60.0,
    **kinds: OperationKind,
) -> BackgroundOperations:
    return BackgroundOperations(
        store,
        records,
        {"count": OperationKind(run=count, resumes=True), **kinds},
        name="counting",
        lease_seconds=lease_seconds,
        poll_seconds=0.01,
    )


@asynccontextmanager
async def running(*operations: BackgroundOperations) -> AsyncIterator[None]:
    """Run them beside the block, which has half a minute; then shut them down."""
    tasks = [asyncio.create_task(each.run()) for each in operations]
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


RESUMED = "The process that ran the operation ended: it continues."


async def lines(store: Store, id: str) -> list[str]:
    """Return the lines of an operation's log, without those of a runner that took it over."""
    found = [entry.record.message async for entry in store.scan(RECORDS.log, id=id)]
    return [message for message in found if message != RESUMED]
