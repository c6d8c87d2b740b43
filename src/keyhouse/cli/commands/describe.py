"""`keyhouse describe`: print a keyspace as a document, as JSON Schema, or as a diagram."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from keyhouse.cli.options import Json, SystemName, examples
from keyhouse.cli.output import show_json, show_markdown, visible
from keyhouse.cli.systems import load_system
from keyhouse.layout import DynamodbLayout, JetstreamLayout, SqlLayout
from keyhouse.schema import BoundRecord, description
from keyhouse.schema.description import prose
from keyhouse.schema.diagram import dot, mermaid
from keyhouse.schema.json_schema import json_schemas
from keyhouse.schema.keyspace_document import document
from keyhouse.service.system import System


class Format(StrEnum):
    MARKDOWN = "markdown"
    JSON = "json"
    JSON_SCHEMA = "json-schema"
    MERMAID = "mermaid"
    DOT = "dot"


@examples(
    "keyhouse describe audiobooks",
    "keyhouse describe audiobooks --format json-schema > audiobooks.schema.json",
    "keyhouse describe history --format dot | dot -Tsvg > history.svg",
)
def describe(
    system: SystemName,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="`markdown`; `json` (everything), `json-schema` (the values), `mermaid` or `dot`"
            " (a diagram).",
        ),
    ] = Format.MARKDOWN,
    json: Json = False,
) -> None:
    """Print a keyspace as a document, as JSON or as a diagram.

    From the code: keys, values, derived rows, expiry and migrations; and the names of tables,
    buckets and attributes in each engine.
    """
    loaded = load_system(system)
    doc = description.prose(loaded.doc).partition("\n")[0]
    schemas = [description.describe(schema) for schema in loaded.schemas]
    match Format.JSON if json and form is Format.MARKDOWN else form:
        case Format.JSON:
            names = {"name": loaded.name, "title": loaded.title, "doc": doc}
            show_json({**names, "schemas": schemas, "layouts": layout_names(loaded)})
        case Format.JSON_SCHEMA:
            show_json(json_schema(loaded))
        case Format.MERMAID:
            print(visible(mermaid(schemas)), end="")
        case Format.DOT:
            print(visible(dot(loaded.name, schemas)), end="")
        case _:
            show_markdown(document(loaded.title, doc, schemas) + layout_section(loaded))


# Layouts: the names of tables, columns, buckets and attributes in each engine


def layout_names(system: System) -> dict[str, Any]:
    """Return the names that each engine gives to the rows of the system."""
    sql = system.layouts.sql or SqlLayout.named(system.name)
    jetstream = system.layouts.jetstream or JetstreamLayout()
    dynamodb = system.layouts.dynamodb or DynamodbLayout()
    columns = {
        name: getattr(sql, name)
        for name in ("space", "key", "value", "revision", "expires", "created", "updated")
        if getattr(sql, name) is not None
    }
    indexes = [name for name in (sql.by_expiry, sql.by_key) if name is not None]
    bucket = f"{jetstream.prefix}<space>" if jetstream.bucket_per_space else system.name
    attributes = {
        name: getattr(dynamodb, name) for name in ("space", "key", "value", "revision", "expires")
    }
    return {
        "sql": {"table": sql.rows, "columns": columns, "indexes": indexes},
        "jetstream": {"bucket": bucket},
        "dynamodb": {
            "attributes": attributes,
            "members": dynamodb.members,
            "lists": list(dynamodb.lists),
            "indexes": [path.index for path in dynamodb.paths],
        },
    }


def layout_section(system: System) -> str:
    """Return the names as a section of Markdown."""
    return "\n".join(_layout_lines(layout_names(system))) + "\n"


def _layout_lines(names: dict[str, Any]) -> Iterator[str]:
    yield "\n## In each engine\n"
    sql, dynamodb = names["sql"], names["dynamodb"]
    columns = ", ".join(_layout_name(name, column) for name, column in sql["columns"].items())
    yield f"- SQLite and PostgreSQL: table `{sql['table']}`, columns {columns}"
    yield f"- NATS JetStream: bucket `{names['jetstream']['bucket']}`"
    attributes = ", ".join(
        _layout_name(name, each) for name, each in dynamodb["attributes"].items()
    )
    text = f"- DynamoDB: attributes {attributes}"
    if dynamodb["members"] or dynamodb["lists"]:
        text += f"; flat members {_code_list([*dynamodb['members'], *dynamodb['lists']])}"
    if dynamodb["indexes"]:
        text += f"; indexes {_code_list(dynamodb['indexes'])}"
    yield text
    yield "- RocksDB: no names: a key is the space and the key"


def _layout_name(name: str, own: str) -> str:
    return f"`{own}`" if own == name else f"`{own}` ({name})"


def _code_list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# JSON Schema (2020-12). Every value of a record is valid against the whole document; `x-records`
# has the type at each key, and the derived rows

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(system: System) -> dict[str, Any]:
    declared = [
        (schema.name, record) for schema in system.schemas for record in schema.unbound.records()
    ]
    values, components = json_schemas(
        [record.type for _, record in declared], ref_template="#/$defs/{name}"
    )
    records = [
        _record_schema(schema, record, value)
        for (schema, record), value in zip(declared, values, strict=True)
    ]
    return {
        "$schema": _DIALECT,
        "title": system.title,
        "description": prose(system.doc).partition("\n")[0],
        "anyOf": _distinct(values),
        "$defs": components,
        "x-records": records,
    }


def _record_schema(schema: str, record: BoundRecord[Any], value: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": schema,
        "record": record.name,
        "kind": record.declared.kind,
        "key": record.template.text,
        "value": value,
        "private": list(record.declared.private),
        "derived": [
            {"kind": each.declared.kind, "key": each.template.text} for each in record.derived
        ],
    }


def _distinct(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    distinct: list[dict[str, Any]] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct
