"""Streamkit as a part of a running service: who may call, how often, what is answered, and the sweep of expired scenes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.engine import Engine
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.store import sweep
from keyhouse.systems.streamkit.customers import Customers
from keyhouse.systems.streamkit.quota import QuotaSize
from keyhouse.systems.streamkit.routes import READ, WRITE, routes
from keyhouse.systems.streamkit.settings import TENANT_PATTERN, Settings

NAME: Final = "streamkit"


def part(context: ServiceContext) -> ServiceSpec:
    """The part that `keyhouse serve` runs. UsageError names a setting that can't be."""
    settings = read_settings(Settings, context.settings, table=NAME)
    engine, most = context.engine, QuotaSize(settings.quota_keys, settings.quota_bytes)
    auth = jwt_auth(
        settings, context.data, system=NAME, tenant_pattern=TENANT_PATTERN, clock=engine.clock
    )
    rates = RateLimiter(settings.rate_per_second, burst=settings.rate_burst, clock=engine.clock)
    return ServiceSpec(
        name=NAME,
        title="Streamkit",
        about="Text cyclers, swaps, layouts and notes of an OBS control panel, and how often each scene is used.",
        routes=routes(Customers(engine, most, settings.keys)),
        auth=auth,
        rates=rates,
        tasks=[_sweeping(engine, settings.sweep_seconds)],
        ready=auth.ready,
    )


SERVICE: Final = Service(
    settings=Settings, build=part, tenant_pattern=TENANT_PATTERN, scopes=(READ, WRITE)
)


def _sweeping(engine: Engine, seconds: float) -> Callable[[], Awaitable[None]]:
    async def forever() -> None:
        while True:
            await asyncio.sleep(seconds)
            await sweep(engine)

    return forever
