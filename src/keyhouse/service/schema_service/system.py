"""The system of a schema: what registry and command line need of it, cheap to import."""

from typing import Any

from keyhouse.errors import DeclarationError
from keyhouse.schema import Meta, Schema
from keyhouse.service.system import System

__all__ = ["SchemaSystem", "with_meta"]

_PACKAGE = "keyhouse.service.schema_service"


def with_meta(schema: Schema) -> Schema:
    """Return the schema with the rows in which a store notes which indexes are complete. A schema
    whose own keys leave no place for them is returned as it is."""
    if schema.meta is not None or schema.prefix or not any(each.derived for each in schema.records):
        return schema
    try:
        return Schema(
            schema.name,
            *schema.records,
            space=schema.space,
            doc=schema.doc,
            overlaps=schema.overlaps,
            fixed=schema.fixed,
            meta=Meta(),
            operations=schema.operations,
            writes_legacy_keys=schema.writes_legacy_keys,
        )
    except DeclarationError:
        return schema


class SchemaSystem(System):
    """A schema as a system. Its service and its remote are made from the declarations."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(
            schema.name,
            title=schema.name.capitalize(),
            doc=schema.doc,
            schemas=(with_meta(schema),),
            service=f"{_PACKAGE}.service:schema_service",
            remote=f"{_PACKAGE}.remote:SchemaRemotes",
        )

    def _load(self, part: str) -> Any:
        loaded = super()._load(part)
        return loaded(self.schemas[0]) if part in ("service", "remote") else loaded
