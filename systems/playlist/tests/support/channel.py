"""The service with a robot, on its own NATS server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keyhouse import open_engine
from keyhouse.nats.bus import Bus, BusSubscription
from keyhouse.nats.connection import connect
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import BLESSED
from systems.playlist.tests.support.service import (
    PlaylistService,
    Visitor,
    fill,
    item,
    playlist_service,
)
from tests.support.nats_servers import own_server
from tests.support.polling import until

ITEMS = [item(f"v{number}", f"Title {number}", seconds=100) for number in range(5)]
MANIFESTS = [each.manifest_url for each in ITEMS]


SUBSCRIPTIONS = 3
"""Of the tasks of a service: the channel's events, the robot's lifecycle, plays."""


class CountingBus(Bus):
    """Counts the subscriptions that the server has."""

    subscribed = 0

    @asynccontextmanager
    async def subscribe(self, subject: str, *, queue: str = "") -> AsyncIterator[BusSubscription]:
        async with super().subscribe(subject, queue=queue) as messages:
            self.subscribed += 1
            yield messages


@asynccontextmanager
async def channel(
    folder: Path,
    *,
    robot: bool = True,
    items: Sequence[CatalogItem] = ITEMS,
    before: Callable[[DemoRobot], Awaitable[None]] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[PlaylistService, DemoRobot, str]]:
    """The service on its own NATS server, with a robot. `before` is called before it starts."""
    fill(folder, items)
    with own_server(folder / "nats") as server:
        url = f"{server.url}/?prefix=&sync=always"
        engine, watched = await open_engine(url), await open_engine(url)
        made = DemoRobot(server.url, "lounge")
        try:
            async with connect(server.url) as client:
                bus = CountingBus(client)
                if robot:
                    await made.__aenter__()
                if before is not None:
                    await before(made)
                async with playlist_service(
                    folder,
                    engine=engine,
                    robot_engine=watched,
                    bus=bus,
                    clock=engine.clock,
                    run_tasks=True,
                    **settings,
                ) as service:
                    await service.stores.acl.put(BLESSED, ["Bob"])
                    await until(lambda: bus.subscribed == SUBSCRIPTIONS)
                    yield service, made, server.url
        finally:
            await made.__aexit__()
            await engine.close()
            await watched.close()


async def saved(member: Visitor, *ids: str) -> str:
    items = [{"video_id": id} for id in ids]
    made = await member.post("/playlists", {"name": " ".join(ids), "items": items}, 201)
    return str(made["playlist_id"])


def run(folder: Path, work: Any, **options: Any) -> None:
    async def main() -> None:
        async with channel(folder, **options) as parts:
            await work(*parts)

    asyncio.run(main())


def queued(robot: DemoRobot) -> list[str]:
    return [each["media"]["id"] for each in robot.queue]
