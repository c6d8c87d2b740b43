"""A watch through restarts of the service, while 64 writers work: every change comes once."""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from keyhouse import RemoteStore
from tests.serve.support.serve_process import Serving, serving
from tests.service.schema_service.support import recipes
from tests.service.schema_service.support.engine_urls import SERVED_ENGINES, engine_url
from tests.service.schema_service.support.recipes import BOX, NOTE
from tests.sizes import size
from tests.support.nats_servers import nats_server
from tests.support.polling import until
from tests.support.program import run

WRITERS = 64
WRITES_BETWEEN = size(100, 200, 200)
"""Acknowledged writes between two restarts."""

SECONDS_MAX = 120

CASES = [
    pytest.param(kind, protocol, marks=marks)
    for kind, protocol, marks in (
        ("sqlite", "http", ()),
        ("sqlite", "nats", pytest.mark.extra),
        ("postgres", "http", pytest.mark.extra),
        ("jetstream", "nats", ()),
    )
    if kind in SERVED_ENGINES
]


class Writers:
    """Tasks that write records, each with its own name, whether or not the service runs."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url}/recipes",
            headers={"Authorization": f"Bearer {token}"},
            timeout=10,
            trust_env=False,
        )
        self.attempted: set[str] = set()
        self.acknowledged: set[str] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        async with self._http:
            await asyncio.gather(*(self._write(worker) for worker in range(WRITERS)))

    def stop(self) -> None:
        self._stopping.set()

    async def until(self, count: int) -> None:
        """Wait for this many acknowledged writes."""
        await until(lambda: len(self.acknowledged) >= count)

    async def _write(self, worker: int) -> None:
        number = 0
        while not self._stopping.is_set():
            name, number = f"{worker}-{number}", number + 1
            self.attempted.add(name)
            try:
                done = await self._http.put(f"/records/note/{name}", json="x")
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
                continue
            if done.status_code == 201:
                self.acknowledged.add(name)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncIterator[Serving]:
    manager = serving(folder, *arguments, KEYHOUSE_RECIPES_RATE_PER_SECOND="0")
    process = await asyncio.to_thread(manager.__enter__)
    try:
        yield process
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def watched(store: RemoteStore, since: int, seen: list[str]) -> None:
    async with aclosing(store.watch(NOTE, since=since)) as events:
        async for event in events:
            seen.append(event.fields["name"])


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize(("kind", "protocol"), CASES)
def test_a_watch_through_restarts_has_no_gap_and_no_repeat(
    kind: str, protocol: str, tmp_path: Path
) -> None:
    shutil.copy(recipes.__file__, tmp_path / "recipes.py")
    asked = ("token", "recipes:BOX", "--space", "ann", "--data", "data")
    token = run(*asked, cwd=tmp_path).stdout.strip()
    engine = engine_url(kind, tmp_path)
    reserved = socket.socket()  # no other process gets its port, also between two restarts
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{reserved.getsockname()[1]}"
    nats = nats_server().url if protocol == "nats" else "off"
    served = ("recipes:BOX", "--http", address, "--nats", nats, "--engine", engine)

    async def scenario() -> None:
        url, seen = f"http://{address}", list[str]()
        remote = (
            RemoteStore(BOX, url, token)
            if protocol == "http"
            else RemoteStore(BOX, nats, space="ann")
        )
        writers = Writers(url, token)
        async with remote as store, asyncio.TaskGroup() as tasks:
            watching: asyncio.Task[None] | None = None
            writing: asyncio.Task[None] | None = None
            for at, how in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, None)):
                async with started(tmp_path, *served) as process:
                    if watching is None or writing is None:
                        since = (await store.page(NOTE, limit=1)).revision
                        watching = tasks.create_task(watched(store, since, seen))
                        writing = tasks.create_task(writers.run())
                    await writers.until((at + 1) * WRITES_BETWEEN)
                    if how is not None:
                        await asyncio.to_thread(process.end, how)
                        continue
                    writers.stop()
                    await writing
                    await until(lambda: writers.acknowledged <= set(seen))
                    watching.cancel()
        assert len(seen) == len(set(seen)), "an event came twice"
        assert writers.acknowledged <= set(seen) <= writers.attempted

    with reserved:
        asyncio.run(scenario())
