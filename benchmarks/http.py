"""Row 6: one config by its id over HTTP, with a token, against a raw ASGI constant on the same server."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from benchmarks.contest import contest, percentile
from benchmarks.figure import Figure
from benchmarks.http_client import Run, get

CONNECTIONS = 64


def measure(folder: Path, rounds: int, size: int) -> Figure:
    """On an event loop of its own, which is the quickest there is: the client must not be what is measured."""
    return uvloop.run(_measure(folder, rounds, size))


async def _measure(folder: Path, rounds: int, size: int) -> Figure:
    async with _server("ours", folder) as ours_there, _server("limit", folder) as limit_there:
        (ours_port, token, note), limit_port = ours_there, limit_there[0]
        asked = get(f"/streamkit/configs/notes/{note}", token)

        async def ours() -> int:
            return await Run(asked, b"}}", size).over(ours_port, CONNECTIONS)

        async def limit() -> int:
            return await Run(asked, b"}", size).over(limit_port, CONNECTIONS)

        await ours()
        await limit()
        results = await contest({"ours": ours, "limit": limit}, rounds=rounds)
        latencies = await _latencies(asked, ours_port, size // 4)
    return Figure(
        row="6",
        work=f"GET of one config with a token, {CONNECTIONS} connections",
        unit="requests/s",
        results=list(results.values()),
        goal=0.40,
        note=f"ours: p50 {percentile(latencies, 50):.1f} ms, p99 {percentile(latencies, 99):.1f} ms at full load. {_PEER}",
    )


_PEER = "PocketBase is not measured here: no package index has it."


async def _latencies(request: bytes, port: int, size: int) -> list[float]:
    """Milliseconds of single requests, while all connections are busy."""
    loop = asyncio.get_running_loop()
    found: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(size // CONNECTIONS):
            start = loop.time()
            writer.write(request)
            await reader.readuntil(b"}}")
            found.append((loop.time() - start) * 1_000)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return found


@contextlib.asynccontextmanager
async def _server(what: str, folder: Path) -> AsyncIterator[tuple[int, str, str]]:
    place = folder / what
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.http_server", what, str(place)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        port, token, note = (await process.stdout.readline()).decode().split()
        yield int(port), token, note
    finally:
        process.stdin.close()
        await process.wait()
