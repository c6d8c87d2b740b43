"""The system of a schema: what registry and command line need of it, cheap to import."""

from typing import Any

from keyhouse.schema import Schema
from keyhouse.service.system import System

__all__ = ["SchemaSystem"]

_PACKAGE = "keyhouse.service.schema_service"


class SchemaSystem(System):
    """A schema as a system. Its service and its remote are made from the declarations."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(
            schema.name,
            title=schema.name.capitalize(),
            doc=schema.doc,
            schemas=(schema,),
            service=f"{_PACKAGE}.service:schema_service",
            remote=f"{_PACKAGE}.remote:SchemaRemotes",
        )

    def _load(self, part: str) -> Any:
        loaded = super()._load(part)
        return loaded(self.schemas[0]) if part in ("service", "remote") else loaded
