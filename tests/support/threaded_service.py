"""A service as it is served: by the listener of `serve`, on a real socket, in a separate thread."""

import asyncio
import inspect
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from prometheus_client import CollectorRegistry

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.http import HttpSettings, make_app
from keyhouse.serve.listener import listening
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.server import BackgroundTasks
from keyhouse.service.host import ServiceHost
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.testing.conformance import Opener

SECRET = "only-for-tests-0123456789abcdef-0123456789"
TIMEOUT_SECONDS = 60
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
"""A rate that no test reaches by accident."""

Build = Callable[[ServiceContext], ServiceSpec | Awaitable[ServiceSpec]]
R = TypeVar("R")


def _mounted(app: Any, root_path: str) -> Any:
    """Return the app below a path, as a proxy does it."""
    if not root_path:
        return app

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": root_path}, receive, send)

    return mounted


class ThreadedService:
    """A service on a socket, with the clock that it goes by. Its engine lives on the loop of the
    thread. Clients made here are closed with it. `docs`: with its OpenAPI document, which takes
    half of its start."""

    def __init__(
        self,
        opener: Opener,
        folder: Path,
        build: Build,
        path: str,
        *,
        runs_tasks: bool = False,
        root_path: str = "",
        docs: bool = True,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.opener = opener
        self.folder = folder
        self._build = build
        self._runs_tasks = runs_tasks
        self._root_path = root_path
        self._http = HttpSettings(docs=docs)
        self._settings = {**FAST, **settings}
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}{root_path}{path}"
        self._started = threading.Event()
        self._ending = asyncio.Event()
        self._clients: list[httpx.Client] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self.spec: ServiceSpec | None = None

    def http(self, token: str | None = None, **options: Any) -> httpx.Client:
        """Return a client with this token. It has no TLS: certificates take longer to load than a
        request."""
        headers = options.pop("headers", {})
        if token is not None:
            headers = {"Authorization": f"Bearer {token}", **headers}
        client = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            transport=httpx.HTTPTransport(verify=False),
            trust_env=False,
            **options,
        )
        self._clients.append(client)
        return client

    def on_engine(self, work: Callable[[Engine], Coroutine[Any, Any, R]]) -> R:
        """Run a function of the service's engine on its loop, and return its result."""
        assert self._loop is not None and self._engine is not None
        running = asyncio.run_coroutine_threadsafe(work(self._engine), self._loop)
        return running.result(TIMEOUT_SECONDS)

    def stop(self) -> None:
        """Start the shutdown, unless a test has, and the loop may be closed already."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ending.set)

    async def prepare(self, engine: Engine) -> None:
        """Write what the service needs, before it is built."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS), "the service did not start"
        if self._failure is not None:
            self._socket.close()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.stop()
        self._thread.join(TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._engine = engine = await self.opener(self.clock)
        try:
            await self.prepare(engine)
            async with ServiceHost() as host:
                await self._listen(engine, host)
        finally:
            await engine.close()

    @cached_property
    def metrics(self) -> CollectorRegistry:
        """The registry of the service's metrics."""
        return CollectorRegistry()

    async def _listen(self, engine: Engine, host: ServiceHost) -> None:
        built = self._build(
            ServiceContext(
                engine=ServedEngine(engine),
                data=self.folder,
                metrics=self.metrics,
                settings=self._settings,
                host=host,
            )
        )
        spec = self.spec = await built if inspect.isawaitable(built) else built
        app = make_app([spec], settings=self._http)
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            if self._runs_tasks:
                await stack.enter_async_context(BackgroundTasks([spec], Metrics("test")))
            await stack.enter_async_context(
                listening(
                    _mounted(app, self._root_path),
                    self._socket,
                    drain_seconds=TIMEOUT_SECONDS,
                    stopping=app.end_streams,
                )
            )
            self._started.set()
            await self._ending.wait()
