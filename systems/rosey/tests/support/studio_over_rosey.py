"""Plugin storage with both listeners on real sockets: plugins use NATS, an operator the Studio."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from nats.aio.client import Client
from prometheus_client import CollectorRegistry

from keyhouse import open_engine
from keyhouse.auth import JwtSettings, mint
from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.http import make_app
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.serve.listener import bind, listening
from keyhouse.service.spec import ServiceContext
from keyhouse.settings.settings import Address
from keyhouse.studio import Studio, StudioSettings, StudioSystem, SystemCatalog
from keyhouse_rosey import SYSTEM
from systems.rosey.tests.support.harness import Patient
from tests.support.nats_servers import nats_server

SECRET = "only-for-tests-0123456789abcdef-0123456789"


def operator(clock: ManualClock, scopes: str = "studio:read", **given: Any) -> str:
    """Return an operator's token."""
    settings = JwtSettings(jwt_secret=SECRET)
    return mint(settings, Path(), "ann", clock=clock, scopes=[scopes], **given)


class Office:
    """`look` is an operator's GET below `/studio`; `ask` a plugin's request."""

    def __init__(self, url: str, engine: Engine, clock: ManualClock, client: Client) -> None:
        self.url = url
        self.engine = engine
        self.clock = clock
        self._client = client
        self.http = httpx.AsyncClient(
            base_url=f"{url}/studio",
            headers={"Authorization": f"Bearer {operator(clock)}"},
            timeout=60,
            transport=httpx.AsyncHTTPTransport(verify=False),  # no TLS here
        )

    async def ask(self, subject: str, **body: Any) -> Any:
        return json.loads(
            (await self._client.request(f"db.kv.{subject}", json.dumps(body).encode())).data
        )

    async def look(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()


@asynccontextmanager
async def office(folder: Path, **settings: Any) -> AsyncIterator[Office]:
    clock = ManualClock()
    engine = await open_engine(f"sqlite:{folder}/rosey.db?layout=rosey", clock=clock)
    own = await open_engine("memory:", clock=clock)
    context = ServiceContext(
        engine=engine, data=folder, metrics=CollectorRegistry(), settings=settings
    )
    served = SYSTEM.service(context)
    system = StudioSystem(
        name=served.name, title=served.title, keyspaces=served.keyspaces, figures=served.figures
    )
    opened = StudioSettings(jwt_secret=SECRET, jwt_leeway_seconds=0)
    studio = Studio(SystemCatalog([system]), own, folder, opened)
    client = Patient()
    await client.connect(nats_server().url)
    try:
        async with (
            connect(nats_server().url) as connection,
            NatsListener(connection, served.endpoints, name="rosey", version="0.1.0"),
            listening(
                make_app([served, studio.spec()]), bind(Address("127.0.0.1", 0)), drain_seconds=1
            ) as address,
        ):
            built = Office(address.url, engine, clock, client)
            async with built.http:
                yield built
    finally:
        await client.close()
        await engine.close()
        await own.close()


def in_office(folder: Path, story: Callable[[Office], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with office(folder, **settings) as built:
            await story(built)

    asyncio.run(run())
