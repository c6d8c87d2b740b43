"""A schema as it is served: by the listener of `serve`, on a real socket, in a separate thread."""

import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from keyhouse.auth import JwtSettings, mint
from keyhouse.clock import ManualClock
from keyhouse.http import make_app
from keyhouse.metrics import Metrics
from keyhouse.schema import Schema
from keyhouse.serve.listener import listening
from keyhouse.serve.server import BackgroundTasks
from keyhouse.service.host import ServiceHost
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from keyhouse.testing.conformance import Opener
from tests.service.schema_service.support.recipes import BOX
from tests.support.nats_servers import nats_server

SECRET = "only-for-tests-0123456789abcdef-0123456789"
TIMEOUT_SECONDS = 60
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
SMALL = {"id": "pie", "title": "Pie", "slug": "apple-pie"}


class Served:
    """A service on a socket. Its engine lives on its own thread's loop."""

    def __init__(self, opener: Opener, folder: Path, schema: Schema = BOX, **settings: Any) -> None:
        self.clock = ManualClock()
        self._opener = opener
        self._folder = folder
        self._schema = schema
        self._settings = {"jwt_secret": SECRET, **FAST, **settings}
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/{schema.name}"
        self._started = threading.Event()
        self.stop: Callable[[], object] = lambda: None
        self._clients: list[httpx.Client] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def token(self, tenant: str = "ann", *scopes: str) -> str:
        settings = JwtSettings(jwt_secret=SECRET)
        return mint(settings, Path(), tenant, clock=self.clock, scopes=scopes or None)

    def client(self, tenant: str = "ann", *scopes: str, **headers: str) -> httpx.Client:
        """Return a client with a token of these scopes, by default read and write."""
        sent = {"Authorization": f"Bearer {self.token(tenant, *scopes)}", **headers}
        plain = httpx.HTTPTransport(verify=False)
        client = httpx.Client(
            base_url=self.url, headers=sent, timeout=TIMEOUT_SECONDS, transport=plain
        )
        self._clients.append(client)
        return client

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS), "the service did not start"
        if self._failure is not None:
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
        engine = await self._opener(self.clock)
        try:
            async with ServiceHost() as host:
                built: Any = schema_service(self._schema).build(
                    ServiceContext(
                        engine=engine,
                        data=self._folder,
                        metrics=CollectorRegistry(),
                        settings=self._settings,
                        host=host,
                    )
                )
                spec = await built if inspect.isawaitable(built) else built
                app = make_app([spec])
                loop, ending = asyncio.get_running_loop(), asyncio.Event()
                self.stop = partial(loop.call_soon_threadsafe, ending.set)
                async with (
                    BackgroundTasks([spec], Metrics("test")),
                    listening(
                        app,
                        self._socket,
                        drain_seconds=TIMEOUT_SECONDS,
                        stopping=app.end_streams,
                    ),
                ):
                    self._started.set()
                    await ending.wait()
        finally:
            await engine.close()


def start_server(kind: str) -> None:
    """Start the server of an engine here: it would end with the thread that starts it."""
    if kind == "jetstream":
        nats_server()


@contextmanager
def serving(
    opener: Opener, folder: Path, schema: Schema = BOX, **settings: Any
) -> Iterator[Served]:
    with Served(opener, folder, schema, **settings) as served:
        yield served
