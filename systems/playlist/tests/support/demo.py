"""The demonstration of `keyhouse playlist demo`, in this process: catalog, robot, service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.demo.catalog import DemoSource
from keyhouse_playlist.demo.playlists import make_playlists, prepare_robot
from keyhouse_playlist.demo.robot import DemoRobot
from systems.playlist.tests.support.channel import channel
from systems.playlist.tests.support.service import PlaylistService


@asynccontextmanager
async def demo_channel(
    folder: Path, *, more: Sequence[CatalogItem] = (), **settings: Any
) -> AsyncIterator[tuple[PlaylistService, DemoRobot]]:
    """Yield the service on its own NATS server and the robot. Ada is an admin, Bob is blessed."""
    items = [item async for some, _ in DemoSource().items() for item in some]
    async with channel(folder, items=[*items, *more], **settings) as (service, robot, _):
        await make_playlists(service.stores)
        await prepare_robot(robot)
        robot.titles |= {each.manifest_url: (each.title, 60) for each in more}
        yield service, robot
