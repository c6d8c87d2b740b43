"""Clients that load a server, in their own process: `listening_clients PORT STREAMS LISTENERS`.

Opens event streams and prints a line when all have received an event. A line on standard input
starts range readers and logins. At the next line, it prints the delays of events that reached every
stream meanwhile, the last delivery of each, as JSON.

In a soak it has a lower priority than the server, with which it shares the cores: real clients are
on other machines.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.sizes import SOAK
from tests.support.polling import until

NICENESS = 19
RANGE_BYTES, RANGE_SECONDS = 65_536, 0.5


@asynccontextmanager
async def get(
    port: int, path: str, *headers: str
) -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Yield the reader of a response, after its headers, and its Content-Length."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"GET /load{path} HTTP/1.1", "Host: x", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] in (b"200", b"206"), head
        length = re.search(rb"content-length: (\d+)", head)
        yield reader, int(length[1]) if length else 0
    finally:
        writer.close()


async def listen(port: int, number: int, listeners: int) -> None:
    """Read range after range, as a player does, each listener at its own time."""
    await asyncio.sleep(RANGE_SECONDS * number / listeners)
    while True:
        start = number * RANGE_BYTES
        ranged = f"Range: bytes={start}-{start + RANGE_BYTES - 1}"
        async with get(port, "/file", ranged) as (reader, size):
            await reader.readexactly(size)
        await asyncio.sleep(RANGE_SECONDS)


async def sign_in(port: int) -> None:
    while True:
        async with get(port, "/in") as (reader, size):
            assert await reader.readexactly(size) == b"false"


async def watch(port: int, delays: dict[float, list[float]]) -> None:
    async with get(port, "/watch") as (reader, _):
        while line := await reader.readline():
            if line.startswith(b"data: "):
                at = json.loads(line[6:])["value"]["at"]
                delays.setdefault(at, []).append(time.time() - at)


async def main(port: int, streams: int, listeners: int) -> None:
    delays: dict[float, list[float]] = {}
    async with asyncio.TaskGroup() as group:  # a client that fails ends them all
        tasks = [group.create_task(watch(port, delays)) for _ in range(streams)]
        await until(lambda: max((len(each) for each in delays.values()), default=0) >= streams)
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        tasks += [group.create_task(listen(port, each, listeners)) for each in range(listeners)]
        tasks += [group.create_task(sign_in(port)) for _ in range(2)]
        await asyncio.sleep(RANGE_SECONDS)
        delays.clear()
        print("loading", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps([max(each) for each in delays.values() if len(each) == streams]))
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    os.nice(NICENESS if SOAK else 0)
    asyncio.run(main(*map(int, sys.argv[1:])))
