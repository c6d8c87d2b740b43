"""A contest: contestants that do the same work, in turns, so that a busy machine is busy for all of them alike."""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec

Contestant = Callable[[], Awaitable[int]]
"""Does some work and says how many operations that was."""


class Result(msgspec.Struct):
    """Operations per second: the median of the rounds, and all of them. `processor_us`: of this process for one operation,
    which a busy machine changes little; a server's is not in it."""

    name: str
    median: float
    rounds: list[float]
    processor_us: float | None = None


async def contest(contestants: dict[str, Contestant], *, rounds: int) -> dict[str, Result]:
    """Each contestant once per round, in an order that turns; a calibration loop before each settles the clock speed."""
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            calibrate()
            gc.collect()
            start, processor = time.perf_counter(), time.process_time()
            operations = await contestants[name]()
            spent[name].append((time.process_time() - processor) / operations * 1e6)
            speeds[name].append(operations / (time.perf_counter() - start))
            await asyncio.sleep(0)
    return {
        name: Result(name, statistics.median(found), found, statistics.median(spent[name]))
        for name, found in speeds.items()
    }


def calibrate() -> float:
    """Seconds for a fixed piece of work."""
    start = time.perf_counter()
    total = 0
    for number in range(100_000):
        total += number * number
    return time.perf_counter() - start


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
