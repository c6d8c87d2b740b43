"""The playlist service: HTTP, commands over NATS, and what runs in the background."""

from collections.abc import Awaitable, Callable
from typing import Final

from keyhouse.clock import monotonic
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import Keyspace, Service, ServiceContext, ServiceSpec
from keyhouse.service.usage import Quota
from keyhouse.settings import read_settings
from keyhouse.systems.playlist import SYSTEM
from keyhouse.systems.playlist.assembly import Assembly, robot_rows
from keyhouse.systems.playlist.errors import ERROR_FORMAT
from keyhouse.systems.playlist.settings import PlaylistSettings

__all__ = ["SERVICE", "build"]


async def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(PlaylistSettings, context.settings, table=SYSTEM.name)
    parts = Assembly(context, settings, await robot_rows(context, settings))
    clock = monotonic(parts.stores.clock)

    def limiter() -> RateLimiter | None:
        rate, burst = settings.rate_per_second, settings.rate_burst or None
        return RateLimiter(rate, burst=burst, clock=clock) if rate else None

    rates = limiter()
    tasks: list[Callable[[], Awaitable[None]]] = [
        parts.prepare,
        parts.refresh.follow,
        parts.sweeper.run,
        parts.events.relay,
        parts.events.watch,
        parts.plays.run,
    ]
    return ServiceSpec(
        name=SYSTEM.name,
        title="Playlists",
        about="Catalog, playlists and queue of a CyTube channel.",
        examples=[
            "keyhouse playlist admin add Ada --data keyhouse-data",
            "keyhouse playlist demo --data keyhouse-data  # prints Ada's code; until Ctrl-C",
        ],
        error_format=ERROR_FORMAT,
        routes=[*parts.routes().values(), *parts.pages()],
        auth=parts.sessions.auth,
        rates=rates,
        address_rates=limiter(),
        endpoints=parts.commands.endpoints(),
        tasks=tasks,
        figures=OperatorFigures(parts.metrics, parts.log, Quota(), rates),
        keyspaces=[
            Keyspace(schema=each, engine=context.engine, fixed={"namespace": settings.namespace})
            for each in SYSTEM.schemas
        ],
    )


SERVICE: Final = Service(settings=PlaylistSettings, build=build)
