"""A simulated service: two processes serve the library over HTTP, behind a proxy, and are killed
and started again; `RemoteStore` clients act at random. Every promise of `library` must hold.

The processes run the code of `keyhouse serve`: the served schema with its routes, authentication,
rates, usage, preparation, sweep, recovery and event feeds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

from prometheus_client import CollectorRegistry

from keyhouse.auth import mint
from keyhouse.errors import KeyhouseError
from keyhouse.http import make_app
from keyhouse.remote_store import RemoteStore
from keyhouse.service.host import ServiceHost
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.store import Store, migrate
from keyhouse.testing.linearizability import Recorded, check
from keyhouse.testing.simulation import SimulatedProcess, World
from keyhouse.testing.simulation.http import ServedApp, SimulatedHttp
from tests.simulation.library import Client, compare, compare_visits, follow
from tests.store.support.planted_bug_checks import LIBRARY, Book

SETTINGS = SchemaSettings(jwt_secret="0123456789abcdefghijklmnopqrstuvwxyz")
NOWHERE = Path(gettempdir(), "simulated")
"""The data folder, which nothing writes: the secret is in the settings."""


async def service(world: World) -> None:
    up: dict[str, ServedApp] = {}

    async def serve(name: str) -> None:
        while True:
            process = world.process(name)
            running = process.spawn(run(process))
            await asyncio.wait([running])
            up.pop(name, None)
            await asyncio.sleep(1)

    async def run(process: SimulatedProcess) -> None:
        context = ServiceContext(
            engine=process.engine,
            data=NOWHERE,
            metrics=CollectorRegistry(),
            settings={"jwt_secret": SETTINGS.jwt_secret},
            host=ServiceHost(),
        )
        spec = schema_service(LIBRARY)(context)
        assert isinstance(spec, ServiceSpec)
        up[process.name] = ServedApp(process, make_app([spec], registry=context.metrics))
        for task in spec.tasks:
            process.spawn(forever(task))
        await asyncio.Event().wait()

    def proxied() -> ServedApp | None:
        alive = [each for each in up.values() if each.process.is_alive]
        return world.random.choice(alive) if alive else None

    def connect(space: str) -> RemoteStore:
        token = mint(SETTINGS, NOWHERE, space, clock=world.clock, seconds=86_400)
        return RemoteStore(LIBRARY, "http://service", token, network=SimulatedHttp(world, proxied))

    history: list[Recorded] = []
    clients: list[Client] = []
    copies: list[dict[str, Book]] = []
    for space in ("l", "m"):
        await migrate(Store(LIBRARY, world.server.rows, space))
    serving = [asyncio.create_task(serve(name)) for name in ("p1", "p2")]
    await asyncio.sleep(1)
    spaces = ("l", "l", "m")
    working: list[asyncio.Task[None]] = []
    following: list[asyncio.Task[None]] = []
    for number, space in enumerate(spaces):
        client = Client(world, f"c{number}", connect(space), space, history)
        copies.append({})
        clients.append(client)
        working.append(asyncio.create_task(client.run(f"c{number}")))
        following.append(asyncio.create_task(follow(client, copies[number])))
    await asyncio.gather(*working)
    await world.settle(200)
    for space, copy in zip(spaces, copies, strict=True):
        await compare(world, space, copy)
        await compare_visits(world, space, [each for each in clients if each.space == space])
    for task in (*following, *serving):
        task.cancel()
    verdict = check(history)
    world.check(verdict.is_linearizable, f"{verdict}")


async def forever(task: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(KeyhouseError):
            return await task()
        await asyncio.sleep(1)
