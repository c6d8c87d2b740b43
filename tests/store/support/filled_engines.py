"""Open engines to move between, fill them, and read their contents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.store import digest
from keyhouse.store.reads.long_read import rows
from tests.support.polling import until

ENGINES = ("memory", "sqlite", "rocksdb")


def opened(kind: str, folder: Path, clock: Clock, **options: Any) -> Engine:
    match kind:
        case "memory":
            return MemoryEngine(clock, **options)
        case "sqlite":
            return SqliteEngine.open(folder / "rows.db", clock=clock, **options)
    return RocksdbEngine.open(folder / "rows", clock=clock, **options)


@asynccontextmanager
async def closing(*engines: Engine) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for engine in engines:
            await engine.close()


async def fill(engine: Engine, *, spaces: int = 3, rows: int = 40) -> None:
    """Fill spaces of different sizes; every third row has an expiry."""
    later = engine.clock.now() + 1_000_000
    for space in range(spaces):
        puts = [
            Put(f"k{number:05d}", b'{"n":%d}' % number, later + number if number % 3 == 0 else None)
            for number in range(rows * (space + 1))
        ]
        for start in range(0, len(puts), 500):
            await engine.commit(f"s{space}", Batch(puts=tuple(puts[start : start + 500])))


async def contents(engine: Engine) -> dict[str, dict[str, tuple[bytes, int | None]]]:
    return {
        space: {row.key: (row.value, row.expires) async for row in rows(engine, space)}
        async for space in engine.spaces()
    }


async def digests(engine: Engine) -> dict[str, tuple[int, str]]:
    found = {space: await digest(engine, space) async for space in engine.spaces()}
    return {space: (each.rows, each.text()) for space, each in found.items()}


async def until_stored(engine: Engine, space: str, key: str, value: bytes) -> None:
    async def is_stored() -> bool:
        (row,) = await engine.read(space, [key])
        return row is not None and row.value == value

    await until(is_stored)
