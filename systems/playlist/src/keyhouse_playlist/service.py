"""The playlist service: HTTP, commands over NATS, and what runs in the background."""

from typing import Final

from keyhouse.auth import load_or_create_secret
from keyhouse.errors import KeyhouseError
from keyhouse.service.measured_routes import page_table
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import SharedRuntime
from keyhouse.service.settings import rate_limiter
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.store import RawRows
from keyhouse_playlist import SYSTEM
from keyhouse_playlist.accounts.address_blocks import AddressBlocks
from keyhouse_playlist.accounts.delivery import Delivery
from keyhouse_playlist.accounts.otp import OneTimeCodes
from keyhouse_playlist.accounts.roles import Roles
from keyhouse_playlist.accounts.routes import sign_in_routes
from keyhouse_playlist.accounts.sessions import MemberSessions
from keyhouse_playlist.catalog.access import CATALOG_FILE, CatalogAccess
from keyhouse_playlist.catalog.mediacms import MediaCms
from keyhouse_playlist.catalog.refresh import Refresh
from keyhouse_playlist.catalog.routes import catalog_routes
from keyhouse_playlist.catalog.tables import MediaCatalog
from keyhouse_playlist.channel.events import ChannelEvents
from keyhouse_playlist.channel.likes import Likes
from keyhouse_playlist.channel.plays import PlayCounter
from keyhouse_playlist.channel.pushes import ChannelPushes, PushRecords
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.channel.robot import Robot
from keyhouse_playlist.channel.routes import channel_routes
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.errors import ERROR_FORMAT
from keyhouse_playlist.playlists.marathons import Marathons
from keyhouse_playlist.playlists.routes import playlist_routes
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.routes import row_routes
from keyhouse_playlist.settings import PlaylistSettings
from keyhouse_playlist.stores import PlaylistStores
from keyhouse_playlist.subjects import KRYTEN, Commands
from keyhouse_playlist.web.channel_pages import ChannelPages
from keyhouse_playlist.web.frame import Frame
from keyhouse_playlist.web.login import LoginPages
from keyhouse_playlist.web.marathon_pages import MarathonPages
from keyhouse_playlist.web.playlist_pages import PlaylistPages
from keyhouse_playlist.web.workbench import Workbench
from keyhouse_playlist.web.working_list import WorkingLists

__all__ = ["SERVICE"]


async def build(context: ServiceContext, settings: PlaylistSettings) -> ServiceSpec:
    log = OperationLog(SYSTEM.name, settings.slow_seconds, tenant_field="user")
    runtime = SharedRuntime(SYSTEM, context, settings, log=log)
    bus, name, namespace = context.bus, settings.channel, settings.namespace
    bus.replies.protect(KRYTEN)
    rows = await robot_rows(context, name)
    stores = PlaylistStores(context.engine, namespace)

    media = MediaCatalog(context.data / CATALOG_FILE)
    catalog = CatalogAccess(media, context)
    url = settings.mediacms_url
    source = None if url is None else MediaCms(url, settings.mediacms_token)
    refresh = Refresh(media, stores, context.run_blocking, source)

    timeout = settings.robot_timeout_seconds
    robot = Robot(bus, stores.clock, channel=name, domain=settings.domain, timeout_seconds=timeout)

    roles = Roles(stores, settings.admins)
    blocks = AddressBlocks(stores)
    hours, public_read = settings.session_hours, settings.public_read
    sessions = MemberSessions(stores, roles, hours=hours, public_read=public_read)
    key = settings.otp_key or load_or_create_secret(context.data, SYSTEM.name, kind="otp")
    deliver = Delivery(settings.delivery, robot)
    codes = OneTimeCodes(stores, roles, blocks, sessions, key=key.encode(), deliver=deliver)

    playlists = SavedPlaylists(stores, catalog)
    marathons = Marathons(playlists, catalog)

    channel = Channel(rows, catalog, stores)
    statistics = ChannelStatistics(stores, catalog)
    plays = PlayCounter(channel, statistics, bus, name=name, namespace=namespace)
    records = PushRecords(stores, name)
    events = ChannelEvents(rows, channel, records, plays, bus, name=name, namespace=namespace)
    pushes = ChannelPushes(
        stores,
        records,
        playlists,
        catalog,
        channel,
        robot,
        statistics,
        publish=events.publish,
        interval_seconds=settings.queue_interval_seconds,
    )
    context.metrics.register(pushes.operations)
    likes = Likes(stores, channel, events)
    commands = Commands(roles, pushes, refresh, context.run_blocking, runtime.metrics, log)

    frame = Frame(stores, channel, statistics, records, sessions)
    lists = WorkingLists(playlists, catalog)
    pages = [
        *frame.files(),
        *LoginPages(frame, codes, blocks, sessions).routes(),
        *Workbench(frame, catalog, playlists, lists).routes(),
        *PlaylistPages(frame, playlists, lists).routes(),
        *MarathonPages(frame, playlists, marathons).routes(),
        *ChannelPages(frame, channel, pushes, likes, statistics).routes(),
    ]

    async def prepare() -> None:
        """Create missing buckets, and repair what other programs left incomplete, at the start."""
        await stores.create_buckets()
        await playlists.repair_index()

    return runtime.spec(
        title="Playlists",
        about="Catalog, playlists and queue of a CyTube channel.",
        examples=[
            "keyhouse playlist admin add Ada",
            "keyhouse playlist demo  # prints Ada's code; until Ctrl-C",
        ],
        error_format=ERROR_FORMAT,
        routes={
            **sign_in_routes(codes, blocks, sessions),
            **catalog_routes(catalog),
            **playlist_routes(playlists, marathons),
            **row_routes(stores),
            **channel_routes(channel, pushes, events, statistics, likes),
            **page_table(pages),
        },
        auth=sessions.auth,
        rates=runtime.rates,
        address_rates=rate_limiter(settings, stores.clock, context.shared_limit("addresses")),
        endpoints=commands.endpoints(),
        tasks=[
            prepare,
            refresh.follow,
            events.relay,
            events.watch,
            plays.run,
            pushes.operations.run,
        ],
        fixed={"namespace": namespace},
        secrets={"otp_key": key.encode()},
    )


async def robot_rows(context: ServiceContext, channel: str) -> RawRows | None:
    """Return the rows of the robot's bucket, on the service's NATS; None without NATS."""
    try:
        engine = await context.open("nats:?prefix=", name="robot")
    except KeyhouseError:
        return None
    return RawRows(engine, f"kryten_{channel}_playlist")


SERVICE: Final = Service(settings=PlaylistSettings, build=build)
