"""Row 6: one config by its id over HTTP, with a token, against a raw ASGI constant on the same server."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from keyhouse.bench.child import child
from keyhouse.bench.contest import Contestant, contest, percentile
from keyhouse.bench.cores import apart
from keyhouse.bench.figure import Figure
from keyhouse.bench.http_client import Run, get

CONNECTIONS = 64


class Asked(NamedTuple):
    """A server of somebody else: where it is, what it is asked, and how its answer ends."""

    port: int
    request: bytes
    end: bytes


Peer = Callable[[Path], contextlib.AbstractAsyncContextManager[Asked | None]]
"""What starts one in a folder; None when it is not installed."""


@contextlib.asynccontextmanager
async def nobody(folder: Path) -> AsyncIterator[Asked | None]:
    yield None


def measure(folder: Path, rounds: int, size: int, peer: Peer = nobody) -> Figure:
    """On an event loop of its own, which is the quickest there is: the client must not be what is measured."""
    return uvloop.run(_measure(folder, rounds, size, peer))


async def _measure(folder: Path, rounds: int, size: int, peer: Peer) -> Figure:
    async with contextlib.AsyncExitStack() as stack:
        begin_to_ask = stack.enter_context(apart())
        ours = await stack.enter_async_context(_server("ours", folder))
        limit = await stack.enter_async_context(_server("limit", folder))
        other = await stack.enter_async_context(peer(folder))
        begin_to_ask()
        asked = get(f"/streamkit/configs/notes/{ours.note}", ours.token)
        spent: dict[str, list[float]] = {"ours": [], "limit": []}

        async def one(name: str, server: Server, end: bytes) -> int:
            before = server.processor_seconds()
            done = await Run(asked, end, size).over(server.port, CONNECTIONS)
            spent[name].append((server.processor_seconds() - before) / done * 1e6)
            return done

        contestants: dict[str, Contestant] = {
            "ours": lambda: one("ours", ours, b"}}"),
            "limit": lambda: one("limit", limit, b"}"),
        }
        if other is not None:
            contestants["peer"] = lambda: Run(other.request, other.end, size // 4).over(
                other.port, CONNECTIONS
            )
        for warm in contestants.values():
            await warm()
        results = await contest(contestants, rounds=rounds)
        latencies = await _latencies(asked, ours.port, size // 4)
    for name, result in results.items():
        # of the server: the client's is not what is asked for
        result.processor_us = median(spent[name][1:]) if name in spent else None
    return Figure(
        row="6",
        work=f"GET of one config with a token, {CONNECTIONS} connections",
        unit="requests/s",
        results=list(results.values()),
        goal=0.40,
        against="a constant on the same server",
        peer_goal=None if other is None else 5,
        note=f"ours: p50 {percentile(latencies, 50):.1f} ms, p99 {percentile(latencies, 99):.1f} ms at full load",
    )


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


class Server(NamedTuple):
    process: int
    port: int
    token: str
    note: str

    def processor_seconds(self) -> float:
        """What the server has used so far; 0 where the machine does not say."""
        try:
            fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def _server(what: str, folder: Path) -> AsyncIterator[Server]:
    place = folder / what
    place.mkdir(parents=True, exist_ok=True)
    async with child("keyhouse.bench.http_server", what, str(place), log=place / "log") as started:
        port, token, note = started.line.split()
        yield Server(started.process, int(port), token, note)
