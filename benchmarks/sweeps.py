"""Case 8, also on the table of plugin storage; 8b is the latency of writes during a sweep."""

import asyncio
import time
from pathlib import Path
from typing import Any

from keyhouse import ManualClock, Store, open_engine, sweep
from keyhouse.bench import cases
from keyhouse.bench.baseline_sqlite import BareSqlite, SqliteBaseline
from keyhouse.bench.comparison import Measurement, percentile
from keyhouse.bench.keyspace import NOTE, NOTE_VALUE, NOTES, SPACE
from keyhouse.bench.result import Result


async def measure(
    folder: Path, rounds: int, size: int, *, layout: str | None = None
) -> list[Result]:
    """Measure on the layout's table: plugin storage has times as text and two more indexes."""
    clock = ManualClock()
    engine = await open_engine(
        f"sqlite:///{folder}/ours.db" + (f"?layout={layout}" if layout else ""), clock=clock
    )
    store = Store(NOTES, engine, SPACE)
    bare = BareSqlite(folder / "baseline.db")
    case = f"8 {layout}" if layout else "8"
    swept = await cases.sweeps(
        store, clock, SqliteBaseline(bare), rounds=rounds, size=size, case=case
    )
    during = await latency(store, clock, rounds, size, f"8b {layout}" if layout else "8b")
    await engine.close()
    bare.close()
    return [swept, during]


async def latency(store: Store, clock: ManualClock, rounds: int, size: int, case: str) -> Result:
    """Compare the p99 of eight writers during a sweep with the p99 without one."""

    async def writes(until: asyncio.Event, latencies: list[float]) -> None:
        number = 0
        while not until.is_set():
            start = time.perf_counter()
            await store.put(NOTE, NOTE_VALUE, name=f"live-{number % 100}")
            latencies.append(time.perf_counter() - start)
            number += 1

    async def period(work: Any) -> float:
        until, latencies = asyncio.Event(), list[float]()
        writers = [asyncio.create_task(writes(until, latencies)) for _ in range(8)]
        await work
        until.set()
        await asyncio.gather(*writers)
        return percentile(latencies, 99)

    calm: list[float] = []
    busy: list[float] = []
    for turn in range(rounds):
        await cases.fill(store, size, 1_000 + turn)
        calm.append(await period(asyncio.sleep(0.3)))
        clock.advance(seconds=20)
        busy.append(await period(sweep(store.engine)))
    speeds = {"ours": [1 / p99 for p99 in busy], "baseline": [1 / p99 for p99 in calm]}
    return Result(
        case=case,
        work="foreground put during the sweep: 1/p99, against the same without it",
        unit="1/s",
        measurements=[
            Measurement(name, sorted(each)[len(each) // 2], each) for name, each in speeds.items()
        ],
        goal=0.50,
    )
