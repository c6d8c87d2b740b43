"""Case 12: 1,000 event streams of one record. Case 13: audio by ranges, 64 listeners."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.services.child import Child, child
from benchmarks.services.cpu_affinity import separate_cores
from benchmarks.services.http_client import get
from benchmarks.services.media_server import FILE
from keyhouse.bench.comparison import Measurement, Workload, compare
from keyhouse.bench.result import Result

WATCHERS: Final = 1_000
LISTENERS: Final = 64
FILE_BYTES: Final = 64 * 2**20
RANGE_BYTES: Final = 2**20
"""One request of a player: about a minute of an audiobook."""

DELIVERY_MS_MAX: Final = 250
WATCHER_KB_MAX: Final = 50


def measure_watchers(folder: Path, rounds: int, watchers: int = WATCHERS) -> Result:
    return uvloop.run(_measure_watchers(folder, rounds, watchers))


def measure_ranges(folder: Path, rounds: int, count: int) -> Result:
    return uvloop.run(_measure_ranges(folder, rounds, count))


@contextlib.asynccontextmanager
async def media_server(variant: str, folder: Path) -> AsyncIterator[Child]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    if not file.exists():
        file.write_bytes(bytes(range(256)) * (FILE_BYTES // 256))
    module = "benchmarks.services.media_server"
    async with child(module, variant, str(folder), log=folder / f"{variant}.log") as started:
        yield started


# Event streams


class _Watcher(asyncio.Protocol):
    """A client of the stream. Calls `seen` when it has subscribed, and with each event."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self._buffer = b""
        self._is_open = False

    def connection_made(self, transport: Any) -> None:
        transport.write(get("/media/watch"))
        self._streams.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
            self._streams.seen()
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        for event in events:
            if b"event: put" in event:
                self._streams.seen()


class Streams:
    """Open event streams, and the time of the last delivery of a change."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._left = count
        self._delivered = asyncio.Event()
        self.transports: list[Any] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._count):
            await loop.create_connection(lambda: _Watcher(self), "127.0.0.1", self._port)
        await self._delivered.wait()

    def seen(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._delivered.set()

    async def change(self, number: int) -> float:
        """Change the record; return the milliseconds from its commit to the last delivery.

        A delivery before the response to the change counts as 0.
        """
        self._left = self._count
        self._delivered.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(get(f"/media/change/{number}"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            start = time.perf_counter()
            async with asyncio.timeout(30):
                await self._delivered.wait()
            return (time.perf_counter() - start) * 1_000
        finally:
            writer.close()

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


async def _measure_watchers(folder: Path, rounds: int, watchers: int) -> Result:
    async with contextlib.AsyncExitStack() as stack:
        move_to_client_core = stack.enter_context(separate_cores())
        server = await stack.enter_async_context(media_server("ours", folder))
        move_to_client_core()
        before = _resident_kb(server.pid)
        streams = Streams(int(server.line), watchers)
        stack.callback(streams.close)
        await streams.open()
        delays = [await streams.change(number) for number in range(rounds + 1)][1:]
        each_kb = (_resident_kb(server.pid) - before) / watchers
    delay = statistics.median(delays)
    return Result(
        case="12",
        work=f"a change of one record to {watchers:,} event streams, durable",
        unit="ms from the commit to the last delivery",
        measurements=[Measurement("ours", delay, delays)],
        note=(
            f"goal {DELIVERY_MS_MAX} ms: {_verdict(delay <= DELIVERY_MS_MAX)};"
            f" {each_kb:.1f} KB a stream, goal {WATCHER_KB_MAX}:"
            f" {_verdict(each_kb <= WATCHER_KB_MAX)}"
        ),
    )


def _resident_kb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4.096


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


# Ranges


class RangeRun:
    """`count` ranges over `connections` connections, one after the other on each."""

    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._left = count
        self._number = 0

    async def over(self, port: int, connections: int) -> int:
        """Return the number of megabytes received."""
        received = await asyncio.gather(*(self._listen(port) for _ in range(connections)))
        return sum(received) // 2**20

    async def _listen(self, port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * RANGE_BYTES)
        received = 0
        try:
            while self._left > 0:
                self._left -= 1
                writer.write(self._next_request())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 206"), head
                received += len(await reader.readexactly(RANGE_BYTES))
        finally:
            writer.close()
        return received

    def _next_request(self) -> bytes:
        self._number += 1
        start = self._number * RANGE_BYTES % FILE_BYTES
        ranged = f"Range: bytes={start}-{start + RANGE_BYTES - 1}\r\n\r\n"
        return get(self._path)[:-2] + ranged.encode()


async def _measure_ranges(folder: Path, rounds: int, count: int) -> Result:
    async with contextlib.AsyncExitStack() as stack:
        move_to_client_core = stack.enter_context(separate_cores())
        ports = {
            variant: int(
                (await stack.enter_async_context(media_server(variant, folder / variant))).line
            )
            for variant in ("ours", "baseline")
        }
        move_to_client_core()

        def workload(variant: str, path: str) -> Workload:
            return lambda: RangeRun(path, count).over(ports[variant], LISTENERS)

        workloads = {
            "ours": workload("ours", f"/media/{FILE}"),
            "baseline": workload("baseline", f"/{FILE}"),
        }
        for warm_up in workloads.values():
            await warm_up()
        measured = await compare(workloads, rounds=rounds)
    return Result(
        case="13",
        work=f"audio by ranges of {RANGE_BYTES >> 20} MiB, {LISTENERS} listeners",
        unit="MiB/s",
        measurements=list(measured.values()),
        goal=0.50,
        baseline="reading the file in the same pieces, on the same server",
        note="the file is in the system's cache",
    )
