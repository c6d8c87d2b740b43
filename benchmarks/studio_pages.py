"""Server time and size of the Studio's pages over a large space.

python -m benchmarks.studio_pages [--rows 1000000] [--engine sqlite:FILE]
"""

import argparse
import asyncio
import gzip
import resource
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import httpx

from keyhouse import open_engine
from keyhouse.engine import Batch, Put
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
FILES = ("pages.css", "icon.svg", "htmx.min.js", "hx-sse.min.js")


async def fill(engine: object, rows: int) -> None:
    """Write half as many books, each with a row of its author."""
    puts: list[Put] = []
    for number in range(rows // 2):
        id, author = f"b{number:07d}", f"a{number % 100}"
        value = b'{"id":"%s","title":"Title %d","author":"%s","pages":%d,"price":1.1,"tags":[]}'
        puts.append(Put(f"book:{id}", value % (id.encode(), number, author.encode(), number % 900)))
        puts.append(Put(f"by-author:{author}:{id}", b"1"))
        if len(puts) >= 500:
            await engine.commit("main", Batch(puts=tuple(puts)))  # type: ignore[attr-defined]
            puts = []
    if puts:
        await engine.commit("main", Batch(puts=tuple(puts)))  # type: ignore[attr-defined]


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


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = await open_engine(given.engine or f"sqlite:{folder}/rows.db")
        start = perf_counter()
        await fill(engine, given.rows)
        print(f"{given.rows:,} rows in {perf_counter() - start:.0f} s")
        async with library(Path(folder), engine) as served, served.signed_in() as client:
            for name, path in PAGES.items():
                times: list[float] = []
                for _ in range(9):
                    start = perf_counter()
                    answer = await client.get(path)
                    times.append(1_000 * (perf_counter() - start))
                    assert answer.status_code == 200, answer.text
                middle = statistics.median(times)
                print(f"{name:16} {middle:7.1f} ms  {len(answer.content):8,} bytes")
            print(f"first page with its files: {await first_page(client):,} bytes compressed")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory of the process: {memory // 1_024:,} MB")
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
