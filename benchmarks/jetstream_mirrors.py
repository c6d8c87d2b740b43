"""A process on a large JetStream bucket: time until it is ready, memory, and what following costs.

The baseline is a bare consumer of `nats-py`, which receives the same messages and keeps nothing.
Each has its own process; they are started in turns, then both follow the same writes.
"""

import asyncio
import statistics
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from benchmarks.mirror_process import BUCKET, Loaded
from benchmarks.services.child import Child, child
from keyhouse.bench.comparison import Measurement, calibrate
from keyhouse.bench.result import Result
from keyhouse.engine import Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.nats.server import NatsServer

SPACE_KEYS = 100
VALUE = b'"' + b"x" * 98 + b'"'

AT_ONCE = 32
"""Commits in flight."""

FOLLOWED_PER_KEY = 0.1
"""Rows that are written again while the processes follow, for each key."""

IDLE_SECONDS = 0.5
"""A process that used no CPU time for so long has received everything."""

SECONDS_RATIO_MAX = 2.0
KEY_BYTES_MAX = 200
FOLLOW_MICROSECONDS_MAX = 10


async def measure(folder: Path, rounds: int, keys: int) -> list[Result]:
    server = NatsServer(folder / "nats")
    server.start()
    try:
        server.ready()
        return await _measure(server.url, folder / "log", rounds, keys)
    finally:
        server.stop()


async def _measure(url: str, log: Path, rounds: int, keys: int) -> list[Result]:
    writer = JetstreamEngine.open(f"{url}/?bucket={BUCKET}&sync=always&reads=mirror")
    await _write(writer, keys)
    loads: dict[str, list[Loaded]] = {"ours": [], "bare": []}
    follows: dict[str, list[float]] = {"ours": [], "bare": []}
    followed = int(keys * FOLLOWED_PER_KEY)
    for turn in range(rounds):
        async with AsyncExitStack() as running:
            children: dict[str, Child] = {}
            for kind in ("ours", "bare") if turn % 2 else ("bare", "ours"):
                calibrate()
                started = child("benchmarks.mirror_process", kind, url, str(keys), log=log)
                children[kind] = await running.enter_async_context(started)
                loads[kind].append(msgspec.json.decode(children[kind].line, type=Loaded))
            before = {kind: await _idle_cpu(each) for kind, each in children.items()}
            await _write(writer, followed)
            for kind, each in children.items():
                spent = await _idle_cpu(each) - before[kind]
                follows[kind].append(spent / followed * 1e6)
    await writer.close()
    return [_loading(loads, keys), _following(follows, followed)]


async def _write(engine: JetstreamEngine, keys: int) -> None:
    spaces = iter(range(keys // SPACE_KEYS))

    async def work() -> None:
        for space in spaces:
            puts = tuple(Put(f"item-{number:08d}", VALUE) for number in range(SPACE_KEYS))
            await engine.commit(f"space-{space}", Batch(puts=puts))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _idle_cpu(process: Child) -> float:
    """Return the CPU time of a process as soon as it uses no more."""
    spent = -1.0
    while process.cpu_seconds() - spent > 0.02:
        spent = process.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
    return spent


def _loading(loads: dict[str, list[Loaded]], keys: int) -> Result:
    memory = statistics.median(each.memory_mb for each in loads["ours"])
    seconds = statistics.median(each.seconds for each in loads["ours"])
    measurements = [
        Measurement(
            name,
            statistics.median(speeds := [keys / each.seconds for each in loads[kind]]),
            speeds,
            statistics.median(each.cpu_seconds for each in loads[kind]) / keys * 1e6,
        )
        for name, kind in (("ours", "ours"), ("baseline", "bare"))
    ]
    return Result(
        case="16",
        work=f"a process on JetStream is ready with {keys:,} keys, against a bare consumer",
        unit="keys/s",
        measurements=measurements,
        goal=1 / SECONDS_RATIO_MAX,
        note=f"ready after {seconds:.1f} s; {memory * 1e6 / keys:.0f} bytes of memory a key, with"
        f" up to 64 MiB of cached values (goal for a million keys: at most {KEY_BYTES_MAX})",
    )


def _following(follows: dict[str, list[float]], rows: int) -> Result:
    measurements = [
        Measurement(
            name, 1e6 / statistics.median(follows[kind]), [1e6 / each for each in follows[kind]]
        )
        for name, kind in (("ours", "ours"), ("baseline", "bare"))
    ]
    cost = statistics.median(follows["ours"])
    return Result(
        case="16 follow",
        work=f"following {rows:,} rows of other processes, against a bare consumer",
        unit="rows/s of CPU",
        measurements=measurements,
        note=f"{cost:.1f} µs of CPU a row (goal: at most {FOLLOW_MICROSECONDS_MAX})",
    )
