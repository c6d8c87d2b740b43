"""Case 6: one config by its id over HTTP, with a token, against a constant on the same server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from benchmarks.services.child import Child, child
from benchmarks.services.cpu_affinity import separate_cores
from benchmarks.services.http_client import Run, get
from keyhouse.bench.comparison import Workload, compare, percentile
from keyhouse.bench.result import Result

CONNECTIONS = 64


class PeerServer(NamedTuple):
    """The port of a peer, the request to send, and the last bytes of its response."""

    port: int
    request: bytes
    end: bytes


StartPeer = Callable[[Path], contextlib.AbstractAsyncContextManager[PeerServer | None]]
"""Starts a peer in a folder; yields None when it is not installed."""


def measure(folder: Path, rounds: int, size: int, start_peer: StartPeer) -> Result:
    """Run on uvloop, the fastest event loop, so that the client is not what is measured."""
    return uvloop.run(_measure(folder, rounds, size, start_peer))


async def _measure(folder: Path, rounds: int, size: int, start_peer: StartPeer) -> Result:
    async with contextlib.AsyncExitStack() as stack:
        move_to_client_core = stack.enter_context(separate_cores())
        ours = await stack.enter_async_context(server_process("ours", folder))
        baseline = await stack.enter_async_context(server_process("baseline", folder))
        peer = await stack.enter_async_context(start_peer(folder))
        move_to_client_core()
        request = get(f"/streamkit/configs/notes/{ours.note}", ours.token)
        cpu: dict[str, list[float]] = {"ours": [], "baseline": []}

        async def run(name: str, server: Server, end: bytes) -> int:
            before = server.process.cpu_seconds()
            count = await Run(request, end, size).over(server.port, CONNECTIONS)
            cpu[name].append((server.process.cpu_seconds() - before) / count * 1e6)
            return count

        workloads: dict[str, Workload] = {
            "ours": lambda: run("ours", ours, b"}}"),
            "baseline": lambda: run("baseline", baseline, b"}"),
        }
        if peer is not None:
            workloads["peer"] = lambda: Run(peer.request, peer.end, size // 4).over(
                peer.port, CONNECTIONS
            )
        for warm_up in workloads.values():
            await warm_up()
        measured = await compare(workloads, rounds=rounds)
        latencies = await _latencies(request, ours.port, size // 4)
    for name, each in measured.items():
        # the server's CPU time replaces the client's
        each.cpu_us = median(cpu[name][1:]) if name in cpu else None
    p50, p99 = percentile(latencies, 50), percentile(latencies, 99)
    return Result(
        case="6",
        work=f"GET of one config with a token, {CONNECTIONS} connections",
        unit="requests/s",
        measurements=list(measured.values()),
        goal=0.50,
        baseline="a constant on the same server",
        peer_goal=None if peer is None else 5,
        note=f"ours: p50 {p50:.1f} ms, p99 {p99:.1f} ms at full load",
    )


async def _latencies(request: bytes, port: int, size: int) -> list[float]:
    """Return milliseconds of single requests while all connections are busy."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(size // CONNECTIONS):
            start = loop.time()
            writer.write(request)
            await reader.readuntil(b"}}")
            latencies.append((loop.time() - start) * 1_000)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return latencies


class Server(NamedTuple):
    process: Child
    port: int
    token: str
    note: str


@contextlib.asynccontextmanager
async def server_process(variant: str, folder: Path) -> AsyncIterator[Server]:
    data = folder / variant
    data.mkdir(parents=True, exist_ok=True)
    module = "benchmarks.services.http_server"
    async with child(module, variant, str(data), log=data / "log") as started:
        port, token, note = started.line.split()
        yield Server(started, int(port), token, note)
