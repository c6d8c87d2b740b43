"""Streamkit as a part of a running service: who may call, how often, what is answered, and the sweep of expired scenes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from keyhouse.auth import jwt_auth, mint
from keyhouse.engine import Engine
from keyhouse.errors import UsageError
from keyhouse.service import RateLimiter, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.store import sweep
from keyhouse.systems.streamkit.customers import Customers
from keyhouse.systems.streamkit.quota import Size
from keyhouse.systems.streamkit.routes import READ, WRITE, routes
from keyhouse.systems.streamkit.settings import TENANT_PATTERN, Settings

NAME: Final = "streamkit"
SCOPES: Final = [READ, WRITE]
"""What its routes ask for, and so all that a token can allow."""


def part(context: ServiceContext) -> ServiceSpec:
    """The part that `keyhouse serve` runs. UsageError names a setting that can't be."""
    settings = read_settings(Settings, context.settings, table=NAME)
    engine, most = context.engine, Size(settings.quota_keys, settings.quota_bytes)
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


def token(
    settings: Mapping[str, Any],
    data: Path,
    customer: str,
    *,
    scopes: Sequence[str] | None,
    seconds: float,
) -> str:
    """A development token for a customer, as `keyhouse token` prints it. UsageError when it can't be made here, or for a
    scope that nothing here asks for."""
    if unknown := [scope for scope in scopes or () if scope not in SCOPES]:
        raise UsageError(
            "There is no such scope: nothing would be allowed by it.",
            scope=unknown[0],
            known=SCOPES,
        )
    read = read_settings(Settings, settings, table=NAME)
    return mint(
        read,
        data,
        customer,
        system=NAME,
        scopes=scopes,
        seconds=seconds,
        tenant_pattern=TENANT_PATTERN,
    )


def _sweeping(engine: Engine, seconds: float) -> Callable[[], Awaitable[None]]:
    async def forever() -> None:
        while True:
            await asyncio.sleep(seconds)
            await sweep(engine)

    return forever
