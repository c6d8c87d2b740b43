"""The audiobook library as a service over HTTP."""

from typing import Final

from keyhouse.auth import SessionAuth, load_or_create_secret
from keyhouse.service.rates import page_rates
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.accounts.accounts import COOKIE, login_guard
from keyhouse_audiobooks.accounts.permissions import PERMISSIONS
from keyhouse_audiobooks.errors import LIBRARY_ERRORS
from keyhouse_audiobooks.libraries import Libraries, ServedLibrary
from keyhouse_audiobooks.routes import routes
from keyhouse_audiobooks.schema import library_schema
from keyhouse_audiobooks.settings import AudiobooksSettings

__all__ = ["SERVICE"]


async def build(context: ServiceContext, settings: AudiobooksSettings) -> ServiceSpec:
    clock, folder = context.engine.clock, context.data / SYSTEM.name
    schema = library_schema(tenants=settings.tenants, sealed=settings.key_ring is not None)
    key = settings.device_key or load_or_create_secret(context.data, SYSTEM.name, kind="device")
    guard = login_guard(clock, key.encode(), context.engine if context.is_shared else None)
    runtime = ServiceRuntime(
        SYSTEM.with_schemas((schema,)),
        context,
        settings,
        lambda name, engine, _: ServedLibrary(
            name,
            engine,
            settings,
            folder,
            guard,
            runtime.log,
            context.worker,
            is_shared=context.is_shared,
            schema=schema,
            key_ring=runtime.key_ring,
            run=context.run_blocking,
        ),
        key_ring=settings.key_ring,
    )
    libraries = Libraries(runtime, settings)
    await libraries.open(settings.library)
    context.metrics.register(libraries.metrics)
    return runtime.spec(
        title="Audiobooks",
        about="A library of audiobooks: books, files, listeners and their places.",
        examples=[
            "keyhouse audiobooks demo books",
            "# then: KEYHOUSE_AUDIOBOOKS_ROOTS=books keyhouse serve",
        ],
        routes=routes(libraries),
        auth=SessionAuth(libraries.session, cookie=COOKIE.name, bearer=True, clock=clock),
        rates=runtime.rates,
        address_rates=page_rates(clock, context.shared_limit("addresses")),
        tasks=libraries.tasks,
        error_format=LIBRARY_ERRORS,
        secrets={"device_key": key.encode()},
    )


SERVICE: Final = Service(settings=AudiobooksSettings, build=build, scopes=PERMISSIONS)
