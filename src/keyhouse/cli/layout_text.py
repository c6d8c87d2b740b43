"""The layout of a system in each engine: names of tables, columns, buckets and attributes."""

from collections.abc import Iterator
from typing import Any

from keyhouse.layout import DynamodbLayout, JetstreamLayout, SqlLayout
from keyhouse.service.system import System

__all__ = ["layout_names", "layout_section"]


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
    return "\n".join(_lines(layout_names(system))) + "\n"


def _lines(names: dict[str, Any]) -> Iterator[str]:
    yield "\n## In each engine\n"
    sql, dynamodb = names["sql"], names["dynamodb"]
    columns = ", ".join(_named(name, column) for name, column in sql["columns"].items())
    yield f"- SQLite and PostgreSQL: table `{sql['table']}`, columns {columns}"
    yield f"- NATS JetStream: bucket `{names['jetstream']['bucket']}`"
    attributes = ", ".join(_named(name, each) for name, each in dynamodb["attributes"].items())
    text = f"- DynamoDB: attributes {attributes}"
    if dynamodb["members"] or dynamodb["lists"]:
        text += f"; flat members {_listed([*dynamodb['members'], *dynamodb['lists']])}"
    if dynamodb["indexes"]:
        text += f"; indexes {_listed(dynamodb['indexes'])}"
    yield text
    yield "- RocksDB: no names: a key is the space and the key"


def _named(name: str, own: str) -> str:
    return f"`{own}`" if own == name else f"`{own}` ({name})"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
