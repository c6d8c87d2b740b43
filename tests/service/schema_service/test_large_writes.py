"""Writes of many records: in turns with other work, one at a time in a space, charged by rows."""

import asyncio
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http.read_meter import read_meter
from keyhouse.operations.batch import BatchOperation, run_batch
from keyhouse.operations.catalog import Catalog
from keyhouse.operations.writes import clear_space
from keyhouse.scheduling import work_turns
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.usage import Quota
from keyhouse.store.reads.long_read import PAGE_BYTES
from keyhouse.testing.faults import FaultyEngine
from tests.service.schema_service.support.recipes import BOX

CATALOG = Catalog(BOX, {})
LARGE = "x" * 100_000


class Sized(FaultyEngine):
    """Notes the bytes of the largest read by keys."""

    most_bytes = 0

    async def read(self, *arguments: Any, **named: Any) -> Any:
        rows = await super().read(*arguments, **named)
        size = sum(len(row.value) for row in rows if row is not None)
        self.most_bytes = max(self.most_bytes, size)
        return rows


def opened() -> tuple[Sized, SchemaSpace]:
    engine = Sized(MemoryEngine(ManualClock()), yields=True)
    return engine, SchemaSpace("ann", engine, Quota(), schema=BOX)


def notes(count: int, text: str = "x") -> list[BatchOperation]:
    return [
        BatchOperation("put", record="note", fields={"name": f"n{number:03d}"}, value=text)
        for number in range(count)
    ]


async def apply(space: SchemaSpace, operations: list[BatchOperation]) -> int:
    encoded = [msgspec.Raw(msgspec.json.encode(each)) for each in operations]
    return (await run_batch(space, CATALOG, "http", operations=encoded)).revision


def test_a_batch_lets_others_run_between_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 operations, each with the decoding of a stored record, were one step."""
    monkeypatch.setattr(work_turns, "LONG_STEP_SECONDS", -1.0)
    monkeypatch.setattr(work_turns, "PAUSED_STEP_SECONDS", 1e9)

    async def main() -> None:
        space = SchemaSpace("ann", MemoryEngine(ManualClock()), Quota(), schema=BOX)
        writing = asyncio.create_task(apply(space, notes(100)))
        turns = 0
        while not writing.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 100

    asyncio.run(main())


def test_large_batches_of_the_same_records_do_not_race_each_other() -> None:
    """All but one started again, until it was their turn: 8 batches were 36 attempts."""

    async def main() -> None:
        engine, space = opened()
        await apply(space, notes(1))
        engine.batches.clear()
        revisions = await asyncio.gather(*(apply(space, notes(100)) for _ in range(8)))
        assert sorted(set(revisions)) == sorted(revisions)
        assert len(engine.batches) == 8

    asyncio.run(main())


def test_a_batch_costs_by_its_operations() -> None:
    async def main() -> None:
        rows = 0

        def add(count: int, size: int) -> None:
            nonlocal rows
            rows += count

        _, space = opened()
        read_meter.set(add)
        await apply(space, notes(250))
        assert rows >= 250

    asyncio.run(main())


def test_clearing_a_space_reads_large_records_in_bounded_groups() -> None:
    """50 records were read at once, of up to 380 KiB each, by each of many requests."""

    async def main() -> None:
        engine, space = opened()
        for start in range(0, 60, 5):
            await apply(space, notes(60, LARGE)[start : start + 5])
        await apply(space, notes(200)[100:])
        engine.most_bytes = 0
        cleared = await asyncio.gather(*(clear_space(space, CATALOG, "http") for _ in range(3)))
        assert sum(each.deleted for each in cleared) == 160
        assert not any(each.more for each in cleared)
        assert engine.most_bytes <= PAGE_BYTES + len(LARGE) + 2

    asyncio.run(main())
