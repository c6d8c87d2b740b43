"""Streamkit as it is served: by the listener of `serve` in a separate thread, or in this process
without a listener."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
from prometheus_client import CollectorRegistry

from keyhouse.auth import mint
from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http import App, make_app
from keyhouse.serve.listener import listening
from keyhouse.service.spec import ServiceContext
from keyhouse.systems.streamkit.service import build
from keyhouse.systems.streamkit.settings import TENANT_PATTERN, StreamkitSettings
from keyhouse.testing.conformance import Opener

SECRET = "only-for-tests-0123456789abcdef-0123456789"
TIMEOUT_SECONDS = 60
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
"""A rate that no test reaches by accident."""


def app_of(engine: Engine, folder: Path, **settings: Any) -> App:
    given = {"jwt_secret": SECRET, **FAST, **settings}
    return make_app(
        [
            build(
                ServiceContext(
                    engine=engine, data=folder, metrics=CollectorRegistry(), settings=given
                )
            )
        ]
    )


def token(customer: str, clock: Clock, **options: Any) -> str:
    settings = StreamkitSettings(jwt_secret=SECRET)
    return mint(settings, Path(), customer, clock=clock, tenant_pattern=TENANT_PATTERN, **options)


class Service:
    """A service on a socket, with the clock that it goes by. Its engine lives on its own thread's
    loop."""

    def __init__(self, opener: Opener, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.opener = opener
        self._folder = folder
        self._settings = settings
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/streamkit"
        self._started = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def client(self, customer: str, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token(customer, self.clock)}"}
        plain = httpx.HTTPTransport(
            verify=False
        )  # no TLS here: certificates take longer to load than a request
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS, transport=plain, **options
        )

    def __enter__(self) -> "Service":
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS), "the service did not begin"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        engine = await self.opener(self.clock)
        try:
            app = app_of(engine, self._folder, **self._settings)
            loop, ending = asyncio.get_running_loop(), asyncio.Event()
            self._stop = partial(loop.call_soon_threadsafe, ending.set)
            async with listening(app, self._socket, drain_seconds=TIMEOUT_SECONDS):
                self._started.set()
                await ending.wait()
        finally:
            await engine.close()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Asked:
    """An app in this process, asked without a socket: the path is sent as it is given, byte by
    byte."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self._tokens: dict[str, str] = {}

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        customer: str | None = None,
        bearer: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        given = dict(headers or {})
        if customer is not None:
            if customer not in self._tokens:
                self._tokens[customer] = token(customer, self.clock)
            bearer = self._tokens[customer]
        if bearer is not None:
            given["authorization"] = f"Bearer {bearer}"
        data = (
            b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        )
        if body is not None:
            given.setdefault("content-type", "application/json")
            given["content-length"] = str(len(data))
        target, _, query = path.partition("?")
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": target,
            "raw_path": f"/streamkit{target}".encode(),
            "query_string": query.encode(),
            "headers": raw,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        sent: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # nothing more comes
            asked = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        answered = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answer(
            sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:])
        )


@asynccontextmanager
async def asked(
    folder: Path, engine: Engine | None = None, **settings: Any
) -> AsyncIterator[Asked]:
    clock = ManualClock() if engine is None else engine.clock
    opened = engine or MemoryEngine(clock)
    try:
        yield Asked(app_of(opened, folder, **settings), clock)
    finally:
        await opened.close()


@contextmanager
def serving(opener: Opener, folder: Path, **settings: Any) -> Iterator[Service]:
    with Service(opener, folder, **settings) as service:
        yield service
