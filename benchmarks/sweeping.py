"""Row 8, also on the table of plugin storage; and what a foreground write notices of a sweep."""

import asyncio
import time
from pathlib import Path
from typing import Any

from keyhouse import ManualClock, Store, open_engine, sweep
from keyhouse.bench import rows
from keyhouse.bench.contest import Result, percentile
from keyhouse.bench.figure import Figure
from keyhouse.bench.hand import Hand
from keyhouse.bench.library import SPACE
from keyhouse.bench.limit import ByHand


async def measure(
    folder: Path, rounds: int, size: int, *, layout: str | None = None
) -> list[Figure]:
    """With a layout, on its table: that of plugin storage keeps its times as text, and two indexes more."""
    clock = ManualClock()
    engine = await open_engine(
        f"sqlite:///{folder}/ours.db" + (f"?layout={layout}" if layout else ""), clock=clock
    )
    store = Store(rows.NOTES, engine, SPACE)
    hand = Hand(folder / "hand.db")
    row = f"8 {layout}" if layout else "8"
    swept = await rows.sweeps(store, clock, ByHand(hand), rounds=rounds, size=size, row=row)
    noticed = await latency(store, clock, rounds, size, f"8b {layout}" if layout else "8b")
    await engine.close()
    hand.close()
    return [swept, noticed]


async def latency(store: Store, clock: ManualClock, rounds: int, size: int, row: str) -> Figure:
    """The p99 of writes by eight writers, while a sweep runs and while none does."""

    async def writes(until: asyncio.Event, found: list[float]) -> None:
        number = 0
        while not until.is_set():
            start = time.perf_counter()
            await store.put(rows.NOTE, rows.TEXT, name=f"live-{number % 100}")
            found.append(time.perf_counter() - start)
            number += 1

    async def period(work: Any) -> float:
        until, found = asyncio.Event(), list[float]()
        writers = [asyncio.create_task(writes(until, found)) for _ in range(8)]
        await work
        until.set()
        await asyncio.gather(*writers)
        return percentile(found, 99)

    calm: list[float] = []
    busy: list[float] = []
    for turn in range(rounds):
        await rows.fill(store, size, 1_000 + turn)
        calm.append(await period(asyncio.sleep(0.3)))
        clock.advance(seconds=20)
        busy.append(await period(sweep(store.engine)))
    names = {"ours": [1 / p99 for p99 in busy], "limit": [1 / p99 for p99 in calm]}
    return Figure(
        row=row,
        work="foreground put during the sweep: 1/p99, against the same without it",
        unit="1/s",
        results=[
            Result(name, sorted(found)[len(found) // 2], found) for name, found in names.items()
        ],
        goal=0.50,
    )
