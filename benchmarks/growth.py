"""Growth from 1,000 rows to a million: the time of a get and of a list, and memory.

The baseline is the same get by hand: a larger B-tree is deeper and does not fit in the cache.
"""

import asyncio
import random
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from keyhouse import Record, Schema, Space, Store, open_engine
from keyhouse.bench.baseline_sqlite import BareSqlite
from keyhouse.bench.comparison import calibrate, percentile
from keyhouse.engines.sqlite.connections import CACHE_KIBIBYTES

ITEM: Record[Any] = Record(Any, "item:{name}", name="item")
SCHEMA = Schema("items", ITEM, space=Space("a plugin"))


class StoreSize(msgspec.Struct):
    rows: int
    get_p50_us: float
    baseline_p50_us: float
    list_ms: float
    memory_mb: float


ROUNDS = 5


async def measure(
    folder: Path, sizes: tuple[int, ...], *, layout: str | None = None
) -> list[StoreSize]:
    """Make a file of each size, then measure them in turns, so that other load affects all."""
    memory = {size: await _make(folder, size, layout) for size in sizes}
    gets: dict[int, list[float]] = {size: [] for size in sizes}
    baselines: dict[int, list[float]] = {size: [] for size in sizes}
    lists: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(ROUNDS):
        for size in sizes:
            async with _store(folder, size, layout) as store:
                calibrate()
                get, list_ = await _measure_size(store, size)
            gets[size].append(get)
            lists[size].append(list_)
            baselines[size].append(_baseline(folder, size))
    return [
        StoreSize(
            size,
            statistics.median(gets[size]) * 1e6,
            statistics.median(baselines[size]) * 1e6,
            statistics.median(lists[size]) * 1e3,
            memory[size],
        )
        for size in sizes
    ]


@asynccontextmanager
async def _store(folder: Path, size: int, layout: str | None) -> AsyncIterator[Store]:
    engine = await open_engine(
        f"sqlite:///{folder}/size-{size}.db" + (f"?layout={layout}" if layout else "")
    )
    yield Store(SCHEMA, engine, "bench")
    await engine.close()


async def _make(folder: Path, size: int, layout: str | None) -> float:
    """Fill a file, read from it, and return the memory of the process."""
    async with _store(folder, size, layout) as store:
        await _fill(store, 0, size)
        await _measure_size(store, size)
        memory = memory_of("self")
    bare = BareSqlite(folder / f"baseline-{size}.db")
    for first in range(0, size, 5_000):
        numbers = range(first, min(first + 5_000, size))
        bare.put(
            "bench",
            [(f"item:{number:08d}", msgspec.json.encode(_value(number))) for number in numbers],
            1,
        )
    bare.close()
    return memory


def _baseline(folder: Path, size: int) -> float:
    """Return the median seconds of a get, with the same cache."""
    bare = BareSqlite(folder / f"baseline-{size}.db")
    bare.connection.pragma("cache_size", -CACHE_KIBIBYTES)
    draw = random.Random(size)
    keys = [f"item:{draw.randrange(size):08d}" for _ in range(5_000)]
    gets: list[float] = []
    for _ in range(2):
        gets.clear()
        for key in keys:
            start = time.perf_counter()
            msgspec.json.decode(bare.get("bench", key) or b"null")
            gets.append(time.perf_counter() - start)
    bare.close()
    return percentile(gets, 50)


def _value(number: int) -> dict[str, object]:
    return {"number": number, "text": "x" * 80}


async def _fill(store: Store, start: int, stop: int) -> None:
    for first in range(start, stop, 500):

        async def work(tx: Any, first: int = first) -> None:
            for number in range(first, min(first + 500, stop)):
                await tx.put(ITEM, _value(number), name=f"{number:08d}")

        await store.transact(work)


async def _measure_size(store: Store, size: int) -> tuple[float, float]:
    """Return the median seconds of a get and of a list."""
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
        await store.keys(ITEM, limit=1_000, prefix=first if size > 1_000 else "")
        lists.append(time.perf_counter() - start)
        await asyncio.sleep(0)
    return percentile(gets, 50), percentile(lists, 50)


def memory_of(process: int | str) -> float:
    """Return the memory of a process in MB, or this one's peak if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
