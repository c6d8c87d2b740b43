"""The service of a schema: `schema_service(SCHEMA)`."""

import re
from functools import partial
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.auth.settings import TENANT_PATTERN
from keyhouse.errors import UsageError
from keyhouse.operations.catalog import Catalog
from keyhouse.schema import Schema
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.schema_service.own_operations import operation_names
from keyhouse.service.schema_service.preparation import Preparation
from keyhouse.service.schema_service.routes import (
    READ,
    SPACES,
    WRITE,
    CallerSpaces,
    record_routes,
)
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.schema_service.space_routes import space_routes
from keyhouse.service.schema_service.subjects import SchemaSubjects
from keyhouse.service.schema_service.system import SchemaSystem, with_meta
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.store import Store

__all__ = ["check_name", "schema_service"]

_NAME: Final = re.compile("[a-z][a-z0-9_-]{0,62}")
_TAKEN: Final = ("changes", "control")
"""Words after `keyhouse.` in subjects that all schemas share: the tenants of a schema of such a
name could publish the changes of other schemas."""


def schema_service(schema: Schema, *, named: str = "MODULE:SCHEMA") -> Service:
    """Return the service of a schema. Its examples call the schema by this name."""
    return Service(
        settings=SchemaSettings,
        build=partial(_build, schema, named),
        tenant_pattern=TENANT_PATTERN,
        scopes=(READ, WRITE, SPACES),
    )


def _build(
    schema: Schema, named: str, context: ServiceContext, settings: SchemaSettings
) -> ServiceSpec:
    name, schema = check_name(schema), with_meta(schema)
    catalog, operations = Catalog(schema, settings.records), operation_names(schema)
    runtime: ServiceRuntime[SchemaSpace] = ServiceRuntime(
        SchemaSystem(schema),
        context,
        settings,
        lambda space, engine, quota: SchemaSpace(
            space,
            engine,
            quota,
            schema=schema,
            preparation=preparation,
            key_ring=runtime.key_ring,
            log=runtime.log,
        ),
        metrics=OperationMetrics(
            name.replace("-", "_"),
            operations,
            has_watches=True,
            unprepared=lambda: len(preparation.failures),
        ),
        key_ring=settings.key_ring,
    )
    auth = jwt_auth(settings, context.data, system=name, clock=context.engine.clock)
    spaces = CallerSpaces(catalog, settings, runtime.tenants)
    preparation = Preparation(
        schema,
        context.engine,
        lambda space: Store(schema, context.engine, space, key_ring=runtime.key_ring),
        worker=context.worker,
    )
    subjects = SchemaSubjects(catalog, settings, runtime)

    async def ready() -> None:
        await auth.ready()
        await preparation.check()

    return runtime.spec(
        title=name.capitalize(),
        about=schema.doc,
        license="",  # the schema is its author's
        version=str(schema.version),
        examples=_examples(name, named, catalog),
        routes=[*record_routes(catalog, spaces), *space_routes(catalog, spaces)],
        endpoints=subjects.endpoints(),
        tasks=[preparation.run, subjects.watches.follow_peers],
        auth=auth,
        rates=runtime.rates,
        ready=ready,
    )


def _examples(name: str, named: str, catalog: Catalog) -> list[str]:
    """Return commands to try, for the page at `/`."""
    records = catalog.all("http", "record")
    lists = [f"curl --oauth2-bearer $TOKEN http://127.0.0.1:8080/{name}/schema"]
    lists += [
        f"curl --oauth2-bearer $TOKEN http://127.0.0.1:8080/{name}/records/{each.name}"
        for each in records[:2]
    ]
    return [f"TOKEN=$(keyhouse token {named} --space NAME)", *lists]


def check_name(schema: Schema) -> str:
    """Return the schema's name. Raises UsageError if it cannot be a path, a table and a file."""
    if not _NAME.fullmatch(schema.name):
        raise UsageError(
            "The name of a served schema is the path of its routes: a letter, then lower-case "
            "letters, digits, _ and -.",
            schema=schema.name,
        )
    if schema.name in _TAKEN:
        raise UsageError(
            "The subjects of all schemas over NATS begin with this name: choose another.",
            schema=schema.name,
        )
    return schema.name
