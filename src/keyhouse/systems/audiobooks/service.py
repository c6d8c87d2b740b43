"""The audiobook library as a service over HTTP."""

from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from keyhouse.auth import SessionAuth
from keyhouse.engine import Engine
from keyhouse.keyring import KeyRing
from keyhouse.schema import Schema
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.rates import RateLimiter
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.service.summed_metrics import SummedMetrics
from keyhouse.service.usage import Quota
from keyhouse.settings import read_settings
from keyhouse.store import open_migrated
from keyhouse.systems.audiobooks import SYSTEM
from keyhouse.systems.audiobooks.accounts import login_guard
from keyhouse.systems.audiobooks.assembly import LibraryParts, assemble
from keyhouse.systems.audiobooks.errors import LIBRARY_ERRORS
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.permissions import PERMISSIONS
from keyhouse.systems.audiobooks.routes.accounts import COOKIE
from keyhouse.systems.audiobooks.schema import library_schema
from keyhouse.systems.audiobooks.sealing import check_sealed, seal_users
from keyhouse.systems.audiobooks.settings import AudiobooksSettings
from keyhouse.systems.audiobooks.tenancy import Tenancy, check_prefix, own_roots

__all__ = ["SERVICE", "build"]

_log = structlog.get_logger("keyhouse.audiobooks")


async def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(AudiobooksSettings, context.settings, table=SYSTEM.name)
    clock, first = context.engine.clock, settings.library
    sealed = settings.key_ring is not None
    schema = library_schema(tenants=settings.tenants, sealed=sealed)
    system = SYSTEM.with_schemas((schema,))
    runtime = ServiceRuntime(
        system,
        context,
        settings,
        lambda *given: make_library(settings, context.data / SYSTEM.name, schema, ring, *given),
        metrics=OperationMetrics(SYSTEM.name, ()),
        key_ring=settings.key_ring,
    )
    guard, ring, metrics = login_guard(clock), runtime.key_ring, SummedMetrics()

    async def open_library(name: str) -> LibraryParts:
        library = runtime.tenants.get(name)
        for root in library.roots:
            if not root.is_dir():
                _log.warning("a root is not a folder", root=str(root), library=name)
        await check_prefix(context.engine, name, tenants=settings.tenants)
        await check_sealed(library.store)
        await open_migrated(schema, context.engine, name, key_ring=ring)
        if sealed:
            await seal_users(library.store)
        return await assemble(library, settings, context, guard, metrics)

    if settings.tenants:
        parts = await Tenancy(context.engine, schema, first, open_library).parts()
    else:
        parts = await open_library(first)
    context.metrics.register(metrics)
    spec = runtime.spec(
        title="Audiobooks",
        about="A library of audiobooks: books, files, listeners and their places.",
        routes=list(parts.routes.values()),
        auth=SessionAuth(parts.session, cookie=COOKIE, bearer=True, clock=clock),
        rates=runtime.rates,
        address_rates=RateLimiter(50, burst=1_000, clock=clock),  # files of pages count too
        tasks=parts.tasks,
    )
    return replace(spec, error_format=LIBRARY_ERRORS)


def make_library(
    settings: AudiobooksSettings,
    folder: Path,
    schema: Schema,
    ring: KeyRing | None,
    name: str,
    engine: Engine,
    quota: Quota,
) -> Library:
    first = settings.library
    return Library(
        name,
        engine,
        quota,
        schema=schema,
        key_ring=ring,
        roots=[Path(each).resolve() for each in own_roots(settings.roots, name, first)],
        folder=folder if name == first else folder / "tenants" / name,
        has_tenants=settings.tenants,
    )


SERVICE: Final = Service(settings=AudiobooksSettings, build=build, scopes=PERMISSIONS)
