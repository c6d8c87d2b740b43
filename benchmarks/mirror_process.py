"""A process that reads a bucket whole and follows it: as the engine does, or a bare consumer.

`python -m benchmarks.mirror_process ours|bare URL KEYS` prints what reading took as one JSON line.
It follows the bucket until its stdin closes.
"""

import asyncio
import gc
import sys
import time

import msgspec
import nats
from nats.aio.msg import Msg

from benchmarks.growth import memory_of
from keyhouse.engines.jetstream import JetstreamEngine

BUCKET = "mirrored"


class Loaded(msgspec.Struct):
    seconds: float
    cpu_seconds: float
    memory_mb: float


class _Stopwatch:
    def __init__(self) -> None:
        gc.collect()
        self._memory = memory_of("self")
        self._start, self._cpu_start = time.perf_counter(), time.process_time()

    def stop(self) -> Loaded:
        seconds = time.perf_counter() - self._start
        cpu_seconds = time.process_time() - self._cpu_start
        gc.collect()
        return Loaded(seconds, cpu_seconds, memory_of("self") - self._memory)


async def _ours(url: str) -> None:
    engine = JetstreamEngine.open(f"{url}/?bucket={BUCKET}&sync=always")
    await engine.connect()
    stopwatch = _Stopwatch()
    await engine.read("space-0", ["none"])
    await _report(stopwatch)
    await engine.close()


async def _bare(url: str, keys: int) -> None:
    """Receive every message, and keep none."""
    client = await nats.connect(url)
    stopwatch = _Stopwatch()
    received, done = 0, asyncio.Event()

    async def receive(_: Msg) -> None:
        nonlocal received
        received += 1
        if received == keys:
            done.set()

    await client.jetstream().subscribe(
        f"$KV.{BUCKET}.>",
        stream=f"KV_{BUCKET}",
        ordered_consumer=True,
        cb=receive,
        pending_msgs_limit=-1,
        pending_bytes_limit=-1,
    )
    await done.wait()
    await _report(stopwatch)
    await client.close()


async def _report(stopwatch: _Stopwatch) -> None:
    print(msgspec.json.encode(stopwatch.stop()).decode(), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    kind, server, count = sys.argv[1:]
    asyncio.run(_ours(server) if kind == "ours" else _bare(server, int(count)))
