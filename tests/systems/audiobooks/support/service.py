"""The library as it is served, in a separate thread, and clients that are signed in."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client import CollectorRegistry

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.http import make_app
from keyhouse.serve.listener import listening
from keyhouse.service.host import ServiceHost
from keyhouse.service.spec import ServiceContext
from keyhouse.store import Store, verify
from keyhouse.systems.audiobooks.records import Argon2Params
from keyhouse.systems.audiobooks.schema import ARGON2_PARAMS, SCHEMAS
from keyhouse.systems.audiobooks.service import build
from keyhouse.testing.conformance import Opener

TIMEOUT_SECONDS = 60
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
CHEAP = Argon2Params(time_cost=1, memory_cost_kib=8, parallelism=1, hash_bytes=32, salt_bytes=16)
PASSWORD = "correct horse"

R = TypeVar("R")


class LibraryService:
    """A service on a socket. Passwords are hashed at the lowest cost; None: the default one."""

    def __init__(
        self,
        opener: Opener,
        folder: Path,
        *,
        roots: Sequence[Path] = (),
        cost: Argon2Params | None = CHEAP,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.folder = folder
        self.roots = list(roots)
        self._opener = opener
        self._cost = cost
        self._settings = {**FAST, "roots": [str(root) for root in roots], **settings}
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/audiobooks/api/v1"
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] = lambda: None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._engine: Engine | None = None

    def __enter__(self) -> "LibraryService":
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS), "the service did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(TIMEOUT_SECONDS)

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        plain = httpx.HTTPTransport(verify=False)
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            transport=plain,
            trust_env=False,
            **options,
        )

    def admin(self) -> httpx.Client:
        """Return a client of the admin, whom it creates."""
        with self.client() as guest:
            guest.post("/auth/setup", json={"username": "admin", "password": PASSWORD})
        return self.signed_in("admin")

    def signed_in(self, username: str) -> httpx.Client:
        with self.client() as guest:
            reply = guest.post("/auth/login", json={"username": username, "password": PASSWORD})
        assert reply.status_code == 200, reply.text
        return self.client(reply.json()["data"]["token"])

    def user(self, admin: httpx.Client, username: str, *roles: str) -> httpx.Client:
        """Return a client of a new user with these roles."""
        body = {"username": username, "password": PASSWORD, "roles": list(roles)}
        reply = admin.post("/users", json=body)
        assert reply.status_code == 201, reply.text
        return self.signed_in(username)

    def run(self, work: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
        """Run a function of the store on the loop of the service."""
        assert self._loop is not None and self._engine is not None
        store = Store(SCHEMAS[0], self._engine, "main")
        return asyncio.run_coroutine_threadsafe(work(store), self._loop).result(TIMEOUT_SECONDS)

    def check(self) -> None:
        """Assert that `verify` finds nothing: no stale row and no orphan."""

        async def findings(store: Store) -> list[Any]:
            return [each async for each in verify(store)]

        assert self.run(findings) == []

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._engine = engine = await self._opener(self.clock)
        self._loop, ending = asyncio.get_running_loop(), asyncio.Event()
        self._stop = partial(self._loop.call_soon_threadsafe, ending.set)
        host = ServiceHost()
        self.folder.mkdir(exist_ok=True)
        context = ServiceContext(
            engine=engine,
            data=self.folder,
            metrics=CollectorRegistry(),
            settings=self._settings,
            host=host,
        )
        if self._cost is not None:
            await Store(SCHEMAS[0], engine, "main").put(ARGON2_PARAMS, self._cost)
        spec = await build(context)
        tasks = [asyncio.ensure_future(task()) for task in spec.tasks]
        try:
            async with listening(make_app([spec]), self._socket, drain_seconds=5):
                self._started.set()
                await ending.wait()
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await engine.close()
