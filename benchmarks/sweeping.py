"""Row 8: sweeping 10,000 expired rows, against one DELETE by hand; and what a foreground write notices of it."""

import asyncio
import time
from pathlib import Path
from typing import Any

from benchmarks.contest import Result, percentile
from benchmarks.figure import Figure
from benchmarks.hand import Hand
from benchmarks.library import SPACE
from keyhouse import ManualClock, Record, Schema, Space, Store, open_engine, per_write, sweep

NOTE: Record[Any] = Record(Any, "note:{name}", name="note", expiry=per_write())
SCHEMA = Schema("notes", NOTE, space=Space("a plugin"))
VALUE = {"text": "x" * 100}


async def measure(folder: Path, rounds: int, size: int, *, layout: str | None = None) -> list[Figure]:
    """With a layout, on its table: that of plugin storage keeps its times as text, and two indexes more."""
    clock = ManualClock()
    engine = await open_engine(f"sqlite:///{folder}/ours.db" + (f"?layout={layout}" if layout else ""), clock=clock)
    store = Store(SCHEMA, engine, SPACE)
    hand = Hand(folder / "hand.db")
    spent: dict[str, list[float]] = {"ours": [], "limit": []}
    for turn in range(rounds):
        await _fill(store, size, turn)
        clock.advance(seconds=20)
        start = time.perf_counter()
        assert await sweep(engine) == size
        spent["ours"].append(size / (time.perf_counter() - start))
        hand.connection.execute("BEGIN IMMEDIATE")
        hand.connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, 1, 10)",
            [(SPACE, f"note:{turn}-{number}", b'{"text":"' + b"x" * 100 + b'"}') for number in range(size)],
        )
        hand.connection.execute("COMMIT")
        start = time.perf_counter()
        hand.connection.execute("DELETE FROM rows WHERE expires <= ?", (20,))
        spent["limit"].append(size / (time.perf_counter() - start))
    swept = Figure(
        row=f"8 {layout}" if layout else "8",
        work=f"sweep of {size:,} expired rows",
        unit="rows/s",
        results=[Result(name, sorted(found)[len(found) // 2], found) for name, found in spent.items()],
        goal=0.30,
    )
    latency = await _latency(store, clock, rounds, size, layout)
    await engine.close()
    hand.close()
    return [swept, latency]


async def _fill(store: Store, size: int, turn: int) -> None:
    for start in range(0, size, 500):
        await asyncio.gather(
            *(store.put(NOTE, VALUE, name=f"{turn}-{number}", ttl=10) for number in range(start, start + 500))
        )


async def _latency(store: Store, clock: ManualClock, rounds: int, size: int, layout: str | None) -> Figure:
    """The p99 of writes by eight writers, while a sweep runs and while none does."""

    async def writes(until: asyncio.Event, found: list[float]) -> None:
        number = 0
        while not until.is_set():
            start = time.perf_counter()
            await store.put(NOTE, VALUE, name=f"live-{number % 100}")
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
        await _fill(store, size, 1_000 + turn)
        calm.append(await period(asyncio.sleep(0.3)))
        clock.advance(seconds=20)
        busy.append(await period(sweep(store.engine)))
    names = {"ours": [1 / p99 for p99 in busy], "limit": [1 / p99 for p99 in calm]}
    return Figure(
        row=f"8b {layout}" if layout else "8b",
        work="foreground put during the sweep: 1/p99, against the same without it",
        unit="1/s",
        results=[Result(name, sorted(found)[len(found) // 2], found) for name, found in names.items()],
        goal=0.50,
    )
