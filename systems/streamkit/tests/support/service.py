"""Streamkit as it is served: by the listener of `serve` in a separate thread, or in this process
without a listener."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext
from keyhouse.testing.conformance import Opener
from keyhouse_streamkit import SYSTEM
from keyhouse_streamkit.settings import TENANT_PATTERN, StreamkitSettings
from tests.support.threaded_service import FAST, SECRET, ThreadedService


def app_of(engine: Engine, folder: Path, **settings: Any) -> App:
    given = {"jwt_secret": SECRET, **FAST, **settings}
    return make_app(
        [
            SYSTEM.service(
                ServiceContext(
                    engine=ServedEngine(engine),
                    data=folder,
                    metrics=CollectorRegistry(),
                    settings=given,
                )
            )
        ]
    )


def token(customer: str, clock: Clock, **options: Any) -> str:
    settings = StreamkitSettings(jwt_secret=SECRET)
    return mint(settings, Path(), customer, clock=clock, tenant_pattern=TENANT_PATTERN, **options)


class Service(ThreadedService):
    """The service of streamkit."""

    def __init__(self, opener: Opener, folder: Path, **settings: Any) -> None:
        super().__init__(
            opener, folder, SYSTEM.service, "/streamkit", jwt_secret=SECRET, **settings
        )

    def client(self, customer: str, **options: Any) -> httpx.Client:
        return self.http(token(customer, self.clock), **options)


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
