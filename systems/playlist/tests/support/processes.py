"""Processes of the service on one NATS, with the members that use them over HTTP."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from keyhouse import open_engine
from keyhouse.auth import new_token
from keyhouse.nats.server import NatsServer
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import BLESSED, SESSION, Session
from keyhouse_playlist.stores import PlaylistStores
from systems.playlist.tests.support.service import API, fill
from tests.serve.support.serve_process import Serving, environment, serving
from tests.support.polling import until, wait_until

COOKIE = "kryten_playlist_session"
SETTINGS = {
    "KEYHOUSE_PLAYLIST_OTP_KEY": "k" * 32,
    "KEYHOUSE_PLAYLIST_ADMINS": "Ada, Root",
    "KEYHOUSE_PLAYLIST_RATE_PER_SECOND": "100000",
    "KEYHOUSE_PLAYLIST_RATE_BURST": "100000",
    "KEYHOUSE_PLAYLIST_QUEUE_INTERVAL_SECONDS": "0",
    "KEYHOUSE_PLAYLIST_SWEEP_SECONDS": "3600",
}


@contextmanager
def processes(
    folder: Path,
    nats: str,
    items: Sequence[CatalogItem],
    *,
    count: int = 2,
    engine: str | None = None,
    **settings: str,
) -> Iterator[list[Serving]]:
    """Run processes with a folder and a catalog each, on the same buckets."""
    more = () if engine is None else ("--engine", engine)
    with ExitStack() as stack:
        found = []
        for number in range(count):
            own = folder / f"process-{number}"
            (own / "data").mkdir(parents=True, exist_ok=True)
            fill(own / "data", items)
            given = SETTINGS | settings
            found.append(
                stack.enter_context(serving(own, "playlist", "--nats", nats, *more, **given))
            )
        yield found


@contextmanager
def demonstration(data: Path) -> Iterator[None]:
    """Run the demonstration, with its catalog and robot, for the service with this data folder."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "keyhouse.cli", "playlist", "demo", "--store", str(data)),
            *("--seconds", "600"),  # so that no item ends during a test
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and "in the catalog" in process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def printed_code(served: Serving, name: str) -> str:
    """Return the code that a service with `delivery = "console"` printed last."""
    pattern = rf"Code for {name}: (\w{{8}})"
    return str(wait_until(lambda: re.findall(pattern, served.log_path.read_text()))[-1])


class Shared:
    """The buckets, as another program has them, and clients of the processes."""

    def __init__(self, stores: PlaylistStores, served: Sequence[Serving], robot: DemoRobot) -> None:
        self.stores = stores
        self.robot = robot
        self._served = served
        self._stack = AsyncExitStack()

    def client(self, process: int, *, cookie: str = "") -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=64)
        client = httpx.AsyncClient(
            base_url=self._served[process].http + API,
            cookies={COOKIE: cookie} if cookie else None,
            timeout=httpx.Timeout(60, pool=None),  # of a thousand requests, most wait their turn
            limits=limits,
            trust_env=False,
        )
        self._stack.push_async_callback(client.aclose)
        return client

    async def member(self, process: int, username: str, **options: Any) -> httpx.AsyncClient:
        """Return a client that is signed in. Its session is written as another program does."""
        token = new_token()
        session = Session(
            username=username,
            role="viewer",
            created_at=self.stores.now_text(),
            expires_at=self.stores.now_text(3_600),
            ip="192.0.2.1",
        )
        await self.stores.auth.put(SESSION, session, session_id=token.id)
        return self.client(process, cookie=token.token)

    def _messages_to(self, username: str) -> list[str]:
        """Return the private messages that the robot was asked to send to a user."""
        return [
            each["args"]["msg"]
            for each in self.robot.commands
            if each["command"] == "pm" and each["args"]["to"] == username
        ]

    async def code(self, process: int, username: str) -> str:
        """Request a code, and wait until the robot was asked to send it."""
        known = len(self._messages_to(username))
        answer = await self.client(process).post("/auth/otp/request", json={"username": username})
        assert answer.status_code == 200, answer.text
        await until(lambda: len(self._messages_to(username)) != known)
        return self._messages_to(username)[-1].split(" is ")[1][:8]

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def shared(
    served: Sequence[Serving], nats: str, *, options: str = ""
) -> AsyncIterator[Shared]:
    engine = await open_engine(f"{nats}/?prefix=&sync=always{options}")
    try:
        stores = PlaylistStores(engine, "default")
        await stores.acl.put(BLESSED, ["Bob"])
        async with DemoRobot(nats.partition(",")[0], "lounge") as robot:
            view = Shared(stores, served, robot)
            try:
                yield view
            finally:
                await view.close()
    finally:
        await engine.close()


class EventReader:
    """The events of one client: `names` of what has come, and `data` of each."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.events: list[tuple[str, Any]] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "EventReader":
        self._task = asyncio.create_task(self._read())
        await self.until(lambda events: bool(events))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def data(self, name: str) -> list[Any]:
        return [data for each, data in self.events if each == name]

    async def until(self, condition: Any, seconds: float = 60) -> None:
        await until(lambda: condition(self.events))

    async def _read(self) -> None:
        async with self._client.stream("GET", "/events", timeout=None) as response:
            name = ""
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.events.append((name, json.loads(line.removeprefix("data: "))))


def run(of: tuple[list[Serving], NatsServer], work: Callable[[Shared], Awaitable[None]]) -> None:
    """Run a test on processes that share a NATS server."""

    async def main() -> None:
        served, server = of
        async with shared(served, server.url) as view:
            await work(view)

    asyncio.run(main())
