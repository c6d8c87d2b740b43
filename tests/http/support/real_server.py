"""A service on the real HTTP listener, and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx

from keyhouse.http import App, HttpSettings, make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings.settings import Address

TIMEOUT_SECONDS = 60


class Served(httpx.AsyncClient):
    """A client whose paths are below the first service; `port` and `app` are the server's."""

    def __init__(self, name: str, port: int, app: App) -> None:
        limits = httpx.Limits(max_connections=None)
        super().__init__(base_url=f"http://127.0.0.1:{port}/{name}", limits=limits, timeout=30)
        self.port = port
        self.app = app


@asynccontextmanager
async def serving(
    *specs: ServiceSpec, drain_seconds: float = 5, **settings: Any
) -> AsyncIterator[Served]:
    app = make_app(specs, settings=HttpSettings(drain_seconds=drain_seconds, **settings))
    with bind(Address("127.0.0.1", 0)) as bound:
        async with (
            listening(
                app,
                bound,
                drain_seconds=drain_seconds,
                reject=app.reject,
                stopping=app.end_streams,
            ) as address,
            Served(specs[0].name, address.port, app) as client,
        ):
            yield client


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await scenario()

    asyncio.run(limited())
