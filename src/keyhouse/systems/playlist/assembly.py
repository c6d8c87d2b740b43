"""The parts of the service, put together: what each one needs, and the routes of all."""

from keyhouse.auth import load_or_create_secret
from keyhouse.errors import KeyhouseError
from keyhouse.http import Route
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.spec import ServiceContext
from keyhouse.service.sweeper import Sweeper
from keyhouse.store import RawRows
from keyhouse.systems.playlist import SYSTEM
from keyhouse.systems.playlist.address_blocks import AddressBlocks
from keyhouse.systems.playlist.catalog import MediaCatalog
from keyhouse.systems.playlist.catalog_access import CatalogAccess
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.channel_events import ChannelEvents
from keyhouse.systems.playlist.channel_pushes import ChannelPushes
from keyhouse.systems.playlist.delivery import Delivery
from keyhouse.systems.playlist.marathons import Marathons
from keyhouse.systems.playlist.mediacms import MediaCms
from keyhouse.systems.playlist.otp import OneTimeCodes
from keyhouse.systems.playlist.pages.channel_pages import ChannelPages
from keyhouse.systems.playlist.pages.frame import Frame
from keyhouse.systems.playlist.pages.login import LoginPages
from keyhouse.systems.playlist.pages.marathon_pages import MarathonPages
from keyhouse.systems.playlist.pages.playlist_pages import PlaylistPages
from keyhouse.systems.playlist.pages.workbench import Workbench
from keyhouse.systems.playlist.pages.working_list import WorkingLists
from keyhouse.systems.playlist.play_counter import PlayCounter
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.queue_apply import QueueApply
from keyhouse.systems.playlist.refresh import Refresh
from keyhouse.systems.playlist.robot import Robot
from keyhouse.systems.playlist.roles import Roles
from keyhouse.systems.playlist.routes.catalog import catalog_routes
from keyhouse.systems.playlist.routes.playlists import playlist_routes
from keyhouse.systems.playlist.routes.queue import QueueHandlers, queue_routes
from keyhouse.systems.playlist.routes.rows import row_routes
from keyhouse.systems.playlist.routes.sign_in import sign_in_routes
from keyhouse.systems.playlist.sessions import MemberSessions
from keyhouse.systems.playlist.settings import PlaylistSettings
from keyhouse.systems.playlist.statistics import ChannelStatistics
from keyhouse.systems.playlist.stores import PlaylistStores
from keyhouse.systems.playlist.subjects import Commands

__all__ = ["CATALOG_FILE", "Assembly", "robot_rows"]

CATALOG_FILE = "catalog.sqlite3"


async def robot_rows(context: ServiceContext, settings: PlaylistSettings) -> RawRows | None:
    """Return the rows of the robot's bucket, on the service's NATS; None without NATS."""
    try:
        engine = await context.open("nats:?prefix=", name="robot")
    except KeyhouseError:
        return None
    return RawRows(engine, f"kryten_{settings.channel}_playlist")


class Assembly:
    """`robot_rows` are those of the robot's bucket; None without NATS."""

    def __init__(
        self, context: ServiceContext, settings: PlaylistSettings, robot_rows: RawRows | None
    ) -> None:
        bus = context.bus
        stores = self.stores = PlaylistStores(context.engine, settings.namespace)
        catalog = MediaCatalog(context.data / CATALOG_FILE)
        access = self.catalog = CatalogAccess(catalog, context)
        robot = Robot(
            bus,
            stores.clock,
            channel=settings.channel,
            domain=settings.domain,
            timeout_seconds=settings.robot_timeout_seconds,
        )
        self.roles = Roles(stores, settings.admins)
        self.blocks = AddressBlocks(stores)
        self.sessions = MemberSessions(stores, self.roles, public_read=settings.public_read)
        key = settings.otp_key or load_or_create_secret(context.data, SYSTEM.name, kind="otp")
        self.codes = OneTimeCodes(
            stores,
            self.roles,
            self.blocks,
            key=key.encode(),
            deliver=Delivery(settings.delivery, robot),
        )
        self.playlists = SavedPlaylists(stores, access)
        self.marathons = Marathons(self.playlists, access)
        self.channel = Channel(robot_rows, access, stores)
        self.statistics = ChannelStatistics(stores, access)
        pushes = self.pushes = ChannelPushes(
            stores,
            self.statistics,
            channel=settings.channel,
            pace_seconds=settings.queue_interval_seconds + settings.robot_timeout_seconds,
        )
        self.plays = PlayCounter(
            self.channel,
            self.statistics,
            bus,
            name=settings.channel,
            namespace=settings.namespace,
        )
        self.events = ChannelEvents(
            robot_rows,
            self.channel,
            pushes,
            self.plays,
            bus,
            name=settings.channel,
            namespace=settings.namespace,
        )
        self.apply = QueueApply(
            self.playlists,
            access,
            self.channel,
            robot,
            pushes,
            self.events,
            interval_seconds=settings.queue_interval_seconds,
        )
        source = None
        if settings.mediacms_url is not None:
            source = MediaCms(settings.mediacms_url, settings.mediacms_token)
        self.refresh = Refresh(catalog, stores, context.run_blocking, source)
        self.commands = Commands(self.roles, self.apply, self.refresh, context.run_blocking)
        self.metrics = OperationMetrics(SYSTEM.name, ())
        context.metrics.register(self.metrics)
        self.log = OperationLog(SYSTEM.name, settings.slow_seconds)
        self.sweeper = Sweeper(context.engine, settings.sweep_seconds, self.metrics, self.log)

    async def prepare(self) -> None:
        """Create missing buckets, and repair what other programs left incomplete, at the start."""
        await self.stores.create_buckets()
        await self.playlists.repair_index()

    def routes(self) -> dict[str, Route]:
        """Return all routes by the name of their operation."""
        return {
            **sign_in_routes(self.codes, self.blocks, self.sessions),
            **catalog_routes(self.catalog, self.sessions),
            **playlist_routes(self.playlists, self.marathons, self.sessions),
            **row_routes(self.stores),
            **queue_routes(self.channel, self.apply, self.events, self.statistics, self.sessions),
        }

    def pages(self) -> list[Route]:
        """Return the routes of the pages."""
        frame = Frame(self.stores, self.channel, self.statistics, self.pushes, self.sessions)
        lists = WorkingLists(self.playlists, self.catalog)
        likes = QueueHandlers(self.channel, self.apply, self.events, self.statistics, self.sessions)
        return [
            *frame.routes(),
            *LoginPages(frame, self.codes, self.blocks, self.sessions).routes(),
            *Workbench(frame, self.catalog, self.playlists, lists, self.sessions).routes(),
            *PlaylistPages(frame, self.playlists, lists, self.sessions).routes(),
            *MarathonPages(frame, self.playlists, self.marathons, self.sessions).routes(),
            *ChannelPages(
                frame, self.channel, self.apply, likes, self.statistics, self.sessions
            ).routes(),
        ]
