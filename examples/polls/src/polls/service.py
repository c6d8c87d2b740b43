"""The service: routes, and what a service of this system is made of."""

from msgspec import Struct

from keyhouse.auth import Caller, jwt_auth
from keyhouse.errors import NotFoundError
from keyhouse.http import Response, RouteGroup
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.settings import JwtTenantSettings
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.service.tenants import Tenant
from polls import SYSTEM, operations
from polls.schema import SCHEMAS, Poll


class Ballot(Struct, forbid_unknown_fields=True):
    viewer: str
    option: int


def build(context: ServiceContext, settings: JwtTenantSettings) -> ServiceSpec:
    runtime = ServiceRuntime(
        SYSTEM,
        context,
        settings,
        lambda name, engine, quota: Tenant(name, SCHEMAS[0], engine, quota),
    )
    auth = jwt_auth(settings, context.data, system=SYSTEM.name, clock=context.engine.clock)

    async def ask(body: Poll, caller: Caller) -> Response[Poll]:
        """Start a poll."""
        store = runtime.tenants.get(caller.tenant).store
        return Response(await operations.ask(store, body), status=201)

    async def vote(id: str, body: Ballot, caller: Caller) -> None:
        """Vote, or change a vote."""
        store = runtime.tenants.get(caller.tenant).store
        await operations.vote(store, id, body.viewer, body.option)

    async def result(id: str, caller: Caller) -> dict[str, int]:
        """Return the votes of each option."""
        return await operations.result(runtime.tenants.get(caller.tenant).store, id)

    api = RouteGroup("/polls")
    routes = {
        "ask": api.post("", ask, scope="write"),
        "vote": api.post("/{id}/votes", vote, scope="write", problems=[NotFoundError]),
        "result": api.get("/{id}", result, scope="read", problems=[NotFoundError]),
    }
    return runtime.spec(
        title=SYSTEM.title,
        routes=routes,
        auth=auth,
        rates=runtime.rates,
        ready=auth.ready,
    )


SERVICE = Service(settings=JwtTenantSettings, build=build, scopes=("read", "write"))
