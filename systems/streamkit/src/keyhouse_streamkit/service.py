"""Streamkit as a service over HTTP."""

from functools import partial
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse_streamkit import SYSTEM
from keyhouse_streamkit.routes import READ, WRITE, routes
from keyhouse_streamkit.settings import TENANT_PATTERN, StreamkitSettings
from keyhouse_streamkit.tenants import Customer

__all__ = ["SERVICE"]


def build(context: ServiceContext, settings: StreamkitSettings) -> ServiceSpec:
    clock, pattern = context.engine.clock, TENANT_PATTERN
    runtime = ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Customer, keys=settings.keys),
        log=OperationLog(SYSTEM.name, settings.slow_seconds, tenant_field="customer"),
    )
    auth = jwt_auth(settings, context.data, system=SYSTEM.name, tenant_pattern=pattern, clock=clock)
    return runtime.spec(
        title="Streamkit",
        about="Text cyclers, swaps, layouts and notes of an OBS control panel, and scene activity.",
        examples=[
            "TOKEN=$(keyhouse token streamkit --customer 12345)",
            "curl --oauth2-bearer $TOKEN http://127.0.0.1:8080/streamkit/configs/notes",
        ],
        routes=routes(runtime),
        auth=auth,
        rates=runtime.rates,
        ready=auth.ready,
    )


SERVICE: Final = Service(
    settings=StreamkitSettings, build=build, tenant_pattern=TENANT_PATTERN, scopes=(READ, WRITE)
)
