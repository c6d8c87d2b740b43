"""A service from settings: measured routes, the error format of its system, and tasks that every
service has."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from keyhouse import Record, Schema, Space, Template, TextSegment
from keyhouse.auth import Caller
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import NotFoundError
from keyhouse.http import Route, make_app
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.settings import TenantSettings
from keyhouse.service.spec import ServiceContext
from keyhouse.service.system import System
from keyhouse.service.tenants import Tenant

ITEM: Record[Any] = Record(Any, Template("{key}", key=TextSegment(chars_max=100)), name="item")
SCHEMA = Schema("items", ITEM, space=Space("a tenant", segment=TextSegment(chars_max=20)))


def system(**parts: Any) -> System:
    return System("items", title="Items", doc="Items.", schemas=(SCHEMA,), **parts)


class Handlers:
    async def get(self, id: str) -> dict[str, str]:
        """One item."""
        if id == "absent":
            raise NotFoundError("No such item.", id=id)
        return {"id": id}


def runtime(
    declared: System, metrics: CollectorRegistry, **settings: Any
) -> ServiceRuntime[Tenant]:
    context = ServiceContext(engine=MemoryEngine(), data=Path(), metrics=metrics, settings={})
    return ServiceRuntime(
        declared,
        context,
        TenantSettings(**settings),
        lambda name, engine, quota: Tenant(name, SCHEMA, engine, quota),
    )


async def requested(service: ServiceRuntime[Tenant], path: str) -> httpx.Response:
    routes = {"get": Route(method="GET", path="/items/{id}", handler=Handlers().get)}
    app = make_app([service.spec(routes=routes)])
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


def test_a_route_counts_its_requests_and_errors() -> None:
    async def story() -> None:
        registry = CollectorRegistry()
        service = runtime(system(), registry)
        assert (await requested(service, "/items/items/a")).json() == {"id": "a"}
        assert (await requested(service, "/items/items/absent")).status_code == 404
        page = generate_latest(registry).decode()
        assert "items_get_total 1.0" in page
        assert 'items_errors_total{error_code="NOT_FOUND"} 1.0' in page

    asyncio.run(story())


def test_a_slow_operation_is_logged_with_its_path_parameters() -> None:
    async def story() -> None:
        with capture_logs() as lines:
            await requested(
                runtime(system(), CollectorRegistry(), slow_seconds=1e-9), "/items/items/a"
            )
        [slow] = [line for line in lines if line["event"] == "items get slow"]
        assert (slow["log_level"], slow["id"]) == ("warning", "a")

    asyncio.run(story())


def test_a_caller_has_a_tenant_a_subject_roles_and_scopes() -> None:
    caller = Caller(tenant="main", subject="ann", roles=frozenset({"admin"}))
    assert (caller.tenant, caller.subject, caller.roles, caller.scopes) == (
        "main",
        "ann",
        frozenset({"admin"}),
        frozenset(),
    )


def test_zero_switches_limits_and_background_tasks_off() -> None:
    async def story() -> None:
        settings = {"sweep_seconds": 0, "usage_scan_seconds": 0, "rate_per_second": 0}
        service = runtime(system(), CollectorRegistry(), **settings)
        assert service.rates is None and not service.quota
        assert service.tenants.get("a").usage is None
        for task in service.spec().tasks:
            await asyncio.wait_for(task(), 10)

    asyncio.run(story())
