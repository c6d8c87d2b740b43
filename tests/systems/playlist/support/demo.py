"""The demonstration of `keyhouse playlist demo`, in this process: catalog, robot, service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keyhouse.systems.playlist.catalog import CatalogItem
from keyhouse.systems.playlist.demo import make_playlists, prepare_robot
from keyhouse.systems.playlist.demo_catalog import DemoSource
from keyhouse.systems.playlist.demo_robot import DemoRobot
from tests.systems.playlist.support.channel import channel
from tests.systems.playlist.support.service import PlaylistService


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
