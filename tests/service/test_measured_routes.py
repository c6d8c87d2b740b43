"""Every route of every system is an operation by name: measured, logged, and in the Studio."""

import asyncio
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DeclarationError
from keyhouse.http import Route, make_app
from keyhouse.service.host import ServiceHost
from keyhouse.service.measured_routes import measured_routes, page_table
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from tests.service.schema_service.support.recipes import BOX
from tests.studio.support.library import library

SERVICES: dict[str, tuple[Service, dict[str, Any]]] = {
    **{name: (load_service(name), {}) for name in system_names() if has_service(name)},
    "audiobooks with tenants": (load_service("audiobooks"), {"tenants": True}),
    "a schema": (schema_service(BOX), {}),
}


async def built(
    service: Service, data: Path, **settings: Any
) -> tuple[ServiceSpec, CollectorRegistry]:
    registry = CollectorRegistry()
    spec = service(
        ServiceContext(
            engine=MemoryEngine(),
            data=data,
            metrics=registry,
            settings=settings,
            host=ServiceHost(),
        )
    )
    return (await spec if inspect.isawaitable(spec) else spec), registry


@pytest.mark.parametrize("name", SERVICES)
def test_every_route_and_subject_is_an_operation_with_metrics(name: str, tmp_path: Path) -> None:
    """Two systems had no operations, and in the others a name that was not in a second list was not
    measured."""
    service, settings = SERVICES[name]
    spec, registry = asyncio.run(built(service, tmp_path, **settings))
    unnamed = [
        f"{each.method} {each.path}"
        for each in spec.routes
        if not each.operation and (each.listed or each.scope is not None or each.error_page)
    ]
    assert unnamed == []
    operations = {each.operation for each in spec.routes if each.operation}
    for endpoint in spec.endpoints:
        operations |= {*endpoint.operations} or {endpoint.name}
    prefix = {"rosey": "rosey_kv"}.get(name, spec.name)
    renamed = {"keys": "list_keys"}
    expected = {f"{prefix}_{renamed.get(each, each)}_duration_seconds" for each in operations}
    assert expected <= {family.name for family in registry.collect()}


@pytest.mark.parametrize("name", SERVICES)
def test_no_two_metrics_of_a_service_have_the_same_name(name: str, tmp_path: Path) -> None:
    """The operation `keys` of a served schema and the number of its stored keys were both
    `<schema>_keys_total`, which Prometheus rejects."""
    service, settings = SERVICES[name]
    _, registry = asyncio.run(built(service, tmp_path, **settings))
    lines = generate_latest(registry).decode().splitlines()
    names = Counter(line.split()[2] for line in lines if line.startswith("# TYPE "))
    assert [each for each, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("name", "path", "operation"),
    [
        ("audiobooks", "/api/v1/auth/status", "auth_status"),
        ("audiobooks", "/offline", "page_offline"),
        ("playlist", "/api/v1/catalog/categories", "catalog_categories"),
        ("playlist", "/playlists", "page_playlists"),
    ],
)
def test_slow_operations_of_a_large_system_are_in_the_studio(
    name: str, path: str, operation: str, tmp_path: Path
) -> None:
    async def story() -> None:
        settings = {"slow_seconds": 1e-9, **({"public_read": True} if name == "playlist" else {})}
        spec, registry = await built(load_service(name), tmp_path, **settings)
        transport = httpx.ASGITransport(app=make_app([spec]))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get(f"/{name}{path}")).status_code == 200
        assert registry.get_sample_value(f"{name}_{operation}_total") == 1
        assert spec.figures is not None
        async with (
            library(tmp_path / "studio", MemoryEngine(), figures=spec.figures) as served,
            served.signed_in() as client,
        ):
            page = (await client.get("/studio/slow.json")).json()
        assert [each["call"] for each in page["operations"]] == [operation]
        assert [each["operation"] for each in page["slow"]] == [operation]

    asyncio.run(story())


async def handler(id: str, body: Any) -> None:
    """Do nothing."""


def test_a_slow_operation_is_described_by_its_path_and_never_by_its_body() -> None:
    """A body of any type was logged if it was a text."""
    log = OperationLog("items", 1e-9)
    route = Route(method="PUT", path="/items/{id}", handler=handler)
    [measured] = measured_routes({"put": route}, OperationMetrics("items"), log)

    async def story() -> None:
        await measured.handler(id="a", body="secret")

    asyncio.run(story())
    [slow] = log.slow
    assert slow.fields == {"id": "a"}


def test_a_file_of_pages_is_not_measured() -> None:
    log, metrics = OperationLog("items", 1), OperationMetrics("items")
    file = Route(method="GET", path="/assets/a.css", handler=handler, listed=False)
    assert measured_routes(page_table([file]), metrics, log) == [file]


def test_two_pages_of_one_name_are_rejected() -> None:
    pages = [Route(method="GET", path=path, handler=handler) for path in ("/a/b", "/a_b")]
    with pytest.raises(DeclarationError, match="same operation"):
        page_table(pages)


def test_an_operation_has_no_name_of_another_metric() -> None:
    route = Route(method="GET", path="/errors", handler=handler)
    with pytest.raises(DeclarationError, match="name the operation differently"):
        measured_routes({"errors": route}, OperationMetrics("items"), OperationLog("items", 1))
