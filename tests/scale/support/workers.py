"""`keyhouse serve --workers N` of the recipes, and a client of each worker."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from keyhouse.auth import JwtSettings, mint
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server
from tests.serve.support.serve_process import Serving, serving
from tests.service.schema_service.support.engine_urls import engine_url
from tests.support.polling import until, wait_until

RECIPES = "tests.service.schema_service.support.recipes:BOX"
SECRET = "a secret of thirty-two characters"
SETTINGS = {
    "KEYHOUSE_RECIPES_JWT_SECRET": SECRET,
    "KEYHOUSE_RECIPES_RATE_PER_SECOND": "0",
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
}
SPACE = "ann"


class Workers:
    """A running service. `engine` is the URL of its rows."""

    def __init__(self, served: Serving, count: int, engine: str) -> None:
        self.served = served
        self.count = count
        self.engine = engine

    @property
    def parent(self) -> int:
        return self.served.process.pid

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.served.log if line["event"] == event]

    @property
    def processes(self) -> list[int]:
        """Return the newest process of each worker."""
        started = {line["worker"]: line["process"] for line in self.lines("worker started")}
        return [started[worker] for worker in range(self.count)]

    async def kill(self, worker: int) -> None:
        """Kill a worker, and wait until the process that takes its place serves."""
        ready = len(self.lines("ready"))
        os.kill(self.processes[worker], signal.SIGKILL)
        await until(lambda: len(self.lines("ready")) > ready)

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Stop the other workers, so that this one accepts the connections of the block."""
        others = [each for number, each in enumerate(self.processes) if number != worker]
        for process in others:
            os.kill(process, signal.SIGSTOP)
        wait_until(lambda: all(_state(process) == "T" for process in others))
        try:
            yield
        finally:
            for process in others:
                os.kill(process, signal.SIGCONT)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client of the space. Any worker accepts its connections."""
        token = mint(JwtSettings(jwt_secret=SECRET), Path(), SPACE)
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.served.http}/recipes"
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=60, trust_env=False, **options
        ) as client:
            yield client

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[list[httpx.AsyncClient]]:
        """Yield a client of each worker, with one connection to it."""
        async with AsyncExitStack() as stack:
            clients: list[httpx.AsyncClient] = []
            for worker in range(self.count):
                one = httpx.Limits(max_connections=1, keepalive_expiry=None)
                client = await stack.enter_async_context(self.client(limits=one))
                with self.only(worker):
                    (await client.get("/records/recipe")).raise_for_status()
                clients.append(client)
            yield clients


@contextmanager
def workers(
    folder: Path, kind: str, *arguments: str, count: int = 2, **settings: str
) -> Iterator[Workers]:
    """Serve the recipes on an engine of this kind."""
    if kind == "dynamodb":
        endpoint = dynamodb_server().endpoint
        url = f"dynamodb://{folder.name}?region={REGION}&endpoint={endpoint}"
    else:
        url = engine_url(kind, folder)
    given = (RECIPES, "--workers", str(count), "--engine", url, *arguments)
    with serving(folder, *given, **(SETTINGS | settings)) as served:
        yield Workers(served, count, url)


def recipe(id: str, **members: Any) -> dict[str, Any]:
    return {"id": id, "title": id, "slug": id, **members}


def _state(process: int) -> str:
    text = Path(f"/proc/{process}/stat").read_text()
    return text.rpartition(")")[2].split()[0]
