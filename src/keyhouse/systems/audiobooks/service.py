"""The audiobook library as a service over HTTP."""

from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from keyhouse.auth import SessionAuth
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.rates import RateLimiter
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.store import open_migrated
from keyhouse.systems.audiobooks import SYSTEM
from keyhouse.systems.audiobooks.assembly import assemble
from keyhouse.systems.audiobooks.errors import LIBRARY_ERRORS
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.permissions import PERMISSIONS
from keyhouse.systems.audiobooks.routes.accounts import COOKIE
from keyhouse.systems.audiobooks.settings import AudiobooksSettings

__all__ = ["SERVICE", "build"]


async def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(AudiobooksSettings, context.settings, table=SYSTEM.name)
    await open_migrated(SYSTEM.schemas[0], context.engine, settings.library)
    roots = [Path(each).resolve() for each in settings.roots]
    runtime = ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Library, roots=roots, folder=context.data / SYSTEM.name),
        metrics=OperationMetrics(SYSTEM.name, ()),
    )
    clock = context.engine.clock
    parts = await assemble(runtime.tenants.get(settings.library), settings, context)
    spec = runtime.spec(
        title="Audiobooks",
        about="A library of audiobooks: books, files, listeners and their places.",
        routes=list(parts.routes.values()),
        auth=SessionAuth(parts.session, cookie=COOKIE, bearer=True, clock=clock),
        rates=runtime.rates,
        address_rates=RateLimiter(20, burst=200, clock=clock),
        tasks=parts.tasks,
    )
    return replace(spec, error_format=LIBRARY_ERRORS)


SERVICE: Final = Service(settings=AudiobooksSettings, build=build, scopes=PERMISSIONS)
