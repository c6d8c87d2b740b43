"""The audiobook library as a service over HTTP."""

from typing import Final

from msgspec.structs import replace

from keyhouse.auth import SessionAuth
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.rates import RateLimiter
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.service.summed_metrics import SummedMetrics
from keyhouse.settings import read_settings
from keyhouse.systems.audiobooks import SYSTEM
from keyhouse.systems.audiobooks.errors import LIBRARY_ERRORS
from keyhouse.systems.audiobooks.library_opener import LibraryOpener, make_library
from keyhouse.systems.audiobooks.permissions import PERMISSIONS
from keyhouse.systems.audiobooks.routes.accounts import COOKIE
from keyhouse.systems.audiobooks.schema import library_schema
from keyhouse.systems.audiobooks.settings import AudiobooksSettings
from keyhouse.systems.audiobooks.tenancy import Tenancy

__all__ = ["SERVICE", "build"]


async def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(AudiobooksSettings, context.settings, table=SYSTEM.name)
    clock, folder, first = context.engine.clock, context.data / SYSTEM.name, settings.library
    schema = library_schema(tenants=settings.tenants, sealed=settings.key_ring is not None)
    runtime = ServiceRuntime(
        SYSTEM.with_schemas((schema,)),
        context,
        settings,
        lambda *given: make_library(settings, folder, schema, runtime.key_ring, *given),
        metrics=OperationMetrics(SYSTEM.name, ()),
        key_ring=settings.key_ring,
    )
    metrics = SummedMetrics()
    opener = LibraryOpener(context, settings, runtime, metrics)
    if settings.tenants:
        parts = await Tenancy(context.engine, schema, first, opener.open).parts()
    else:
        parts = await opener.open(first)
    context.metrics.register(metrics)
    spec = runtime.spec(
        title="Audiobooks",
        about="A library of audiobooks: books, files, listeners and their places.",
        examples=[
            "keyhouse audiobooks demo books",
            "# then: KEYHOUSE_AUDIOBOOKS_ROOTS=books keyhouse serve",
        ],
        routes=list(parts.routes.values()),
        auth=SessionAuth(parts.session, cookie=COOKIE, bearer=True, clock=clock),
        rates=runtime.rates,
        address_rates=RateLimiter(50, burst=1_000, clock=clock),  # files of pages count too
        tasks=parts.tasks,
    )
    return replace(spec, error_format=LIBRARY_ERRORS)


SERVICE: Final = Service(settings=AudiobooksSettings, build=build, scopes=PERMISSIONS)
