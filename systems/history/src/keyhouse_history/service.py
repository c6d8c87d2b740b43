"""Viewing history as a service over HTTP."""

from functools import partial
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse_history import SYSTEM
from keyhouse_history.profile_names import PROFILE_PATTERN
from keyhouse_history.profiles import Profile
from keyhouse_history.routes import READ, SERVICE_SCOPE, WRITE, routes
from keyhouse_history.settings import HistorySettings

__all__ = ["SERVICE"]


def build(context: ServiceContext, settings: HistorySettings) -> ServiceSpec:
    runtime = ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Profile, entries_max=settings.entries_max),
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
        routes=routes(runtime, settings),
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
