"""How cost grows from a thousand rows to a million: the time of a get and of a list, and the memory of the process."""

import asyncio
import random
import resource
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.contest import percentile
from keyhouse import Record, Schema, Space, Store, open_engine

ITEM: Record[Any] = Record(Any, "item:{name}", name="item")
SCHEMA = Schema("items", ITEM, space=Space("a plugin"))


class Grown(msgspec.Struct):
    rows: int
    get_p50_us: float
    list_ms: float
    memory_mb: float


async def measure(folder: Path, sizes: tuple[int, ...]) -> list[Grown]:
    engine = await open_engine(f"sqlite:///{folder}/grown.db")
    store = Store(SCHEMA, engine, "bench")
    found: list[Grown] = []
    filled = 0
    for size in sizes:
        await _fill(store, filled, size)
        filled = size
        found.append(await _look(store, size))
    await engine.close()
    return found


async def _fill(store: Store, start: int, stop: int) -> None:
    for first in range(start, stop, 500):

        async def work(tx: Any, first: int = first) -> None:
            for number in range(first, min(first + 500, stop)):
                await tx.put(ITEM, {"number": number, "text": "x" * 80}, name=f"{number:08d}")

        await store.transact(work)


async def _look(store: Store, size: int) -> Grown:
    draw = random.Random(size)
    names = [f"{draw.randrange(size):08d}" for _ in range(5_000)]
    for name in names:
        await store.get(ITEM, name=name)
    gets: list[float] = []
    for name in names:
        start = time.perf_counter()
        await store.get(ITEM, name=name)
        gets.append(time.perf_counter() - start)
    lists: list[float] = []
    for _ in range(50):
        first = f"{draw.randrange(max(1, size // 1_000)):05d}"
        start = time.perf_counter()
        await store.keys(ITEM, limit=1_000, starting=first if size > 1_000 else "")
        lists.append(time.perf_counter() - start)
        await asyncio.sleep(0)
    return Grown(size, percentile(gets, 50) * 1e6, percentile(lists, 50) * 1e3, _memory())


def _memory() -> float:
    """What the process holds now, in MB; the most it ever held where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
