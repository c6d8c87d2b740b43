"""Server time and size of the Studio's pages over a large space.

python -m benchmarks.studio_pages [--rows 1000000] [--engine sqlite:FILE|postgres|jetstream]

`postgres` and `jetstream` start a server. Times are wall-clock, which other work on the
machine lengthens, and the CPU time of this process, which is most of an embedded engine's answer.
"""

import argparse
import asyncio
import gzip
import resource
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import httpx

from keyhouse import open_engine
from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import UnavailableError, UnknownOutcomeError
from tests.studio.support.library import library

MAIN = "/studio/library/main"
PAGES = {
    "systems": "/studio/",
    "spaces": "/studio/library/",
    "space": f"{MAIN}/",
    "tree, root": f"{MAIN}/tree",
    "tree, many rows": f"{MAIN}/tree?at=book:",
    "tree, an index": f"{MAIN}/tree?at=by-author:",
    "table": f"{MAIN}/book",
    "table by index": f"{MAIN}/book?q=author%3Da7",
    "key": f"{MAIN}/key?k=book:b0000123",
    "edit": f"{MAIN}/edit?k=book:b0000123",
}
RUNS = 15
FILES = ("pages.css", "icon.svg", "htmx.min.js", "hx-sse.min.js")


async def fill(engine: Engine, rows: int) -> None:
    """Write half as many books, each with a row of its author."""
    puts: list[Put] = []
    for number in range(rows // 2):
        id, author = f"b{number:07d}", f"a{number % 100}"
        value = b'{"id":"%s","title":"Title %d","author":"%s","pages":%d,"price":1.1,"tags":[]}'
        puts.append(Put(f"book:{id}", value % (id.encode(), number, author.encode(), number % 900)))
        puts.append(Put(f"by-author:{author}:{id}", b"1"))
        if len(puts) >= 500:
            await commit(engine, puts)
            puts = []
    if puts:
        await commit(engine, puts)


async def commit(engine: Engine, puts: list[Put]) -> None:
    """Commit rows; again while the engine is busy with those before."""
    while True:
        try:
            await engine.commit("main", Batch(puts=tuple(puts)))
            return
        except (UnavailableError, UnknownOutcomeError):
            await asyncio.sleep(1)


async def measure(client: httpx.AsyncClient, name: str, path: str) -> None:
    """Print the median times and the size of a page."""
    times: list[float] = []
    cpu: list[float] = []
    for _ in range(RUNS):
        start, used = perf_counter(), process_time()
        answer = await client.get(path)
        times.append(1_000 * (perf_counter() - start))
        cpu.append(1_000 * (process_time() - used))
        assert answer.status_code == 200, answer.text
    print(
        f"{name:16} {statistics.median(times):7.1f} ms  {min(times):7.1f} best  "
        f"{statistics.median(cpu):7.1f} CPU  {len(answer.content):8,} bytes"
    )


async def first_page(client: httpx.AsyncClient) -> int:
    """Return the bytes of the first page with its files, compressed as they are sent."""
    page = await client.get("/studio/")
    total = len(gzip.compress(page.content))
    for path in (
        *(f"/assets/{name}" for name in FILES),
        "/studio/assets/studio.css",
        "/studio/assets/studio.js",
    ):
        total += len(gzip.compress((await client.get(path)).content))
    return total


async def engine_url(given: str, folder: str) -> str:
    """Return the URL of the engine, after starting its server."""
    if given == "postgres":
        from tests.support.engine_openers import postgres_schema

        return await postgres_schema()
    if given == "jetstream":
        from tests.support.nats_servers import nats_server

        return f"{nats_server().url}/?bucket=studio"
    return given or f"sqlite:{folder}/rows.db"


def memory() -> int:
    """Return the megabytes that this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1_000_000


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = await open_engine(await engine_url(given.engine, folder))
        start = perf_counter()
        await fill(engine, given.rows)
        print(f"{given.rows:,} rows in {perf_counter() - start:.0f} s")
        async with library(Path(folder), engine) as served, served.signed_in() as client:
            print(f"memory before the pages: {memory():,} MB")
            for name, path in PAGES.items():
                await measure(client, name, path)
            print(f"first page with its files: {await first_page(client):,} bytes compressed")
        print(f"memory after the pages: {memory():,} MB")
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
