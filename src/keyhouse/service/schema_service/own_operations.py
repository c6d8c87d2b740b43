"""Operations of one's own, as a served schema offers them: the call that both protocols share."""

from typing import Any

from keyhouse.schema import Operation, Schema
from keyhouse.schema.operation import OPERATIONS
from keyhouse.service.schema_service.space import SchemaSpace

__all__ = ["call_operation", "operation_names"]


def operation_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of all operations, generated and one's own."""
    return (*OPERATIONS, *(each.name for each in schema.operations))


async def call_operation(space: SchemaSpace, operation: Operation[Any, Any], body: Any) -> Any:
    """Run an operation in a space. While records are migrated or an index is built, lists would
    lack records, so the operation waits for all of them."""
    if not space.state.is_readable:
        await space.state.check_read()
    if not space.state.is_complete:
        await space.state.check_complete()
    return operation.shown(await operation(space.operation_store(operation.access), body))
