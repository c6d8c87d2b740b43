"""Plugin storage as it is served: on a real NATS server, with a real engine below, and a client as
any plugin has one."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry, generate_latest

from keyhouse import open_engine
from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Engine
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse_rosey.operations import Plugin
from keyhouse_rosey.service import make_runtime, make_spec
from keyhouse_rosey.settings import RoseySettings
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import nats_server

ENGINES = ("sqlite", "postgres")


class Patient(Client):
    """The driver's waits half a second, unless told; these machines are busy. The document's
    own code waits five."""

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 30,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        return await super().request(subject, payload, max(timeout, 30), old_style, headers)


class Harness:
    """`restart` ends the service and begins it again on the same rows."""

    def __init__(
        self, url: str, folder: Path, clock: ManualClock, settings: dict[str, Any]
    ) -> None:
        self.url = url
        self.folder = folder
        self.clock = clock
        self.settings = settings
        self.client: Client
        self.engine: Engine
        self.runtime: ServiceRuntime[Plugin]
        self.spec: ServiceSpec
        self.metrics: CollectorRegistry
        self._running = AsyncExitStack()

    async def start(self) -> None:
        self.engine = await open_engine(self.url, clock=self.clock)
        self.metrics = CollectorRegistry()
        context = ServiceContext(
            engine=ServedEngine(self.engine), data=self.folder, metrics=self.metrics
        )
        settings = read_settings(RoseySettings, self.settings, table="rosey")
        self.runtime = make_runtime(context, settings)
        self.spec = make_spec(settings, self.runtime)
        self._running = AsyncExitStack()
        self._running.push_async_callback(self.engine.close)
        connection = await self._running.enter_async_context(connect(nats_server().url))
        listener = NatsListener(connection, self.spec.endpoints, name="rosey", version="0.1.0")
        await self._running.enter_async_context(listener)

    async def stop(self) -> None:
        await self._running.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def ask(self, subject: str, body: object = b"") -> Any:
        """`subject` is `plugin.operation`, or a whole one."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        whole = subject if subject.count(".") > 1 else f"db.kv.{subject}"
        return json.loads((await self.client.request(whole, data, timeout=20)).data)

    async def publish(self, subject: str, body: object) -> None:
        """Publish, and wait for nothing."""
        await self.client.publish(f"db.kv.{subject}", json.dumps(body).encode())

    def metric(self, line: str) -> float | None:
        """Return the value of a metric with its labels."""
        for each in generate_latest(self.metrics).decode().splitlines():
            if each.startswith(f"{line} "):
                return float(each.rpartition(" ")[2])
        return None


@asynccontextmanager
async def harness(engine: str, folder: Path, **settings: Any) -> AsyncIterator[Harness]:
    database = f"sqlite:{folder}/rosey.db?" if engine == "sqlite" else f"{await postgres_schema()}&"
    url = f"{database}layout=rosey"
    built = Harness(url, folder, ManualClock(SystemClock().now()), settings)
    built.client = Patient()
    await built.client.connect(nats_server().url)
    await built.start()
    try:
        yield built
    finally:
        await built.stop()
        await built.client.close()


Live = Callable[[Callable[[Harness], Awaitable[None]]], None]


def living(engine: str, folder: Path, **settings: Any) -> Live:
    """Return a function that runs a story in a new harness."""

    def live(story: Callable[[Harness], Awaitable[None]]) -> None:
        async def run() -> None:
            async with harness(engine, folder, **settings) as built:
                await story(built)

        asyncio.run(run())

    return live
