"""Operations of one's own, as a served schema offers them: HTTP routes `/operations/{name}`, and
the call that both protocols share."""

from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Any

from keyhouse.auth import Caller
from keyhouse.errors import ConflictError, NotFoundError
from keyhouse.http import Route
from keyhouse.schema import Operation, Schema
from keyhouse.service.schema_service.handlers import SchemaHandlers, SpaceHeader
from keyhouse.service.schema_service.operations import OPERATIONS, SpaceOperations
from keyhouse.service.schema_service.space_routes import WRITE_PROBLEMS

__all__ = ["call_operation", "operation_names", "operation_routes"]


def operation_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of all operations, generated and one's own."""
    return (*OPERATIONS, *(each.name for each in schema.operations))


async def call_operation(space: SpaceOperations, operation: Operation[Any, Any], body: Any) -> Any:
    """Run an operation in a space. While records are migrated or an index is built, lists would
    lack records, so the operation waits for all of them."""
    if not space.state.is_readable:
        await space.state.check_read()
    if not space.state.is_complete:
        await space.state.check_complete()
    return operation.shown(await operation(space.operation_store(operation.access), body))


def operation_routes(schema: Schema, on: SchemaHandlers) -> Iterator[tuple[str, Route]]:
    """Yield the routes, each with the name of its operation."""
    for each in schema.operations:
        yield each.name, _route(each, on)


def _route(operation: Operation[Any, Any], on: SchemaHandlers) -> Route:
    async def handler(*, caller: Caller, headers: SpaceHeader, body: Any = None) -> Any:
        return await call_operation(on.space(caller, headers), operation, body)

    types: dict[str, Any] = {"caller": Caller, "headers": SpaceHeader}
    if operation.request is not None:
        types["body"] = operation.request
    handler.__name__ = operation.name
    handler.__doc__ = operation.doc or f"Run the operation {operation.name}."
    handler.__annotations__ = {**types, "return": operation.reply or type(None)}
    handler.__signature__ = Signature(  # type: ignore[attr-defined]  # read by `inspect`
        [Parameter(each, Parameter.KEYWORD_ONLY) for each in types]
    )
    return Route(
        method="POST",
        path=f"/operations/{operation.name}",
        handler=handler,
        scope=operation.access,
        problems=[NotFoundError, ConflictError, *WRITE_PROBLEMS],
        tag="operations",
    )
