"""Compare workloads: they run in turns, so that other load on the machine affects all of them."""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec

Workload = Callable[[], Awaitable[int]]
"""Runs some operations and returns their number."""


class Measurement(msgspec.Struct):
    """Operations per second of one workload: the median of the rounds, and each round.

    `cpu_us` is the CPU time of this process per operation. It varies less than wall-clock time on a
    busy machine, and excludes servers.
    """

    name: str
    median: float
    rounds: list[float]
    cpu_us: float | None = None


async def compare(workloads: dict[str, Workload], *, rounds: int) -> dict[str, Measurement]:
    """Run each workload once per round, in rotating order, each after a calibration loop that
    settles the CPU's clock speed."""
    speeds: dict[str, list[float]] = {name: [] for name in workloads}
    cpu: dict[str, list[float]] = {name: [] for name in workloads}
    names = list(workloads)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            calibrate()
            gc.collect()
            start, cpu_start = time.perf_counter(), time.process_time()
            operations = await workloads[name]()
            cpu[name].append((time.process_time() - cpu_start) / operations * 1e6)
            speeds[name].append(operations / (time.perf_counter() - start))
            await asyncio.sleep(0)
    return {
        name: Measurement(name, statistics.median(each), each, statistics.median(cpu[name]))
        for name, each in speeds.items()
    }


def calibrate() -> float:
    """Return the seconds that a fixed piece of work takes."""
    start = time.perf_counter()
    total = 0
    for number in range(100_000):
        total += number * number
    return time.perf_counter() - start


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
