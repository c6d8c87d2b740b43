"""Viewing history as a service over HTTP."""

from functools import partial
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.systems.history import SYSTEM
from keyhouse.systems.history.profile_names import PROFILE_PATTERN
from keyhouse.systems.history.profiles import Profile
from keyhouse.systems.history.routes import OPERATIONS, READ, SERVICE_SCOPE, WRITE, routes
from keyhouse.systems.history.settings import HistorySettings

__all__ = ["SERVICE", "build"]


def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(HistorySettings, context.settings, table=SYSTEM.name)
    runtime = ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Profile, entries_max=settings.entries_max),
        metrics=OperationMetrics(SYSTEM.name, OPERATIONS),
        log=OperationLog(SYSTEM.name, settings.slow_seconds, tenant_field="caller"),
    )
    auth = jwt_auth(
        settings,
        context.data,
        system=SYSTEM.name,
        tenant_pattern=PROFILE_PATTERN,
        clock=context.engine.clock,
    )
    return runtime.spec(
        title="Viewing history",
        about="What a profile has watched, how far, and by show, season, sport, series and team.",
        examples=[
            "TOKEN=$(keyhouse token history --customer profile-1)",
            "curl --oauth2-bearer $TOKEN"
            " http://127.0.0.1:8080/history/profiles/profile-1/facets/asset/all",
        ],
        routes=runtime.metered(routes(runtime, settings)),
        auth=auth,
        rates=runtime.rates,
        ready=auth.ready,
    )


SERVICE: Final = Service(
    settings=HistorySettings,
    build=build,
    tenant_pattern=PROFILE_PATTERN,
    scopes=(READ, WRITE),
    operator_scopes=(SERVICE_SCOPE,),
)
