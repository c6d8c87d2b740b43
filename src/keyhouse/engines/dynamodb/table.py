"""The two tables: created if missing, otherwise validated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import backoff
from keyhouse.engines.dynamodb.error_map import (
    Failure,
    classify,
    is_absent,
    is_already_created,
    translate,
)
from keyhouse.engines.dynamodb.layout import Layout
from keyhouse.errors import KeyhouseError, UnavailableError, UsageError

BY_EXPIRY: Final = "by-expiry"

WAIT_SECONDS: Final = 120
"""Timeout of creating a table."""

POLL_SECONDS: Final = 0.5

ATTEMPTS_MAX: Final = 3
"""Attempts while DynamoDB is busy or unreachable."""


async def prepare(
    client: Any, table: str, layout: Layout, *, create: bool, native_ttl: bool
) -> None:
    """Ensure that both tables are ready. Idempotent, and safe to run concurrently."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            return await _prepare(client, table, layout, create, native_ttl)
        except KeyhouseError:
            raise
        except Exception as error:
            if (
                classify(error) in (Failure.REJECTED, Failure.CONDITION_FAILED)
                or attempt + 1 == ATTEMPTS_MAX
            ):
                raise translate(error, table) from error
        await backoff(attempt)


async def _prepare(client: Any, table: str, layout: Layout, create: bool, native_ttl: bool) -> None:
    for definition in (rows_table(table, layout), log_table(table)):
        await _prepare_table(client, definition, create)
        if native_ttl and create:
            await _enable_ttl(
                client,
                definition["TableName"],
                layout.ttl if definition["TableName"] == table else "ttl",
            )


def rows_table(table: str, layout: Layout) -> dict[str, Any]:
    types = {layout.space: "S", layout.key: "S", layout.sweep: "S", layout.expires: "N"}
    types |= {path.attribute: "S" for path in layout.paths}
    definition: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in types.items()
        ],
        "KeySchema": _key_schema(layout.space, layout.key),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": BY_EXPIRY,
                "KeySchema": _key_schema(layout.sweep, layout.expires),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    }
    if layout.paths:
        definition["LocalSecondaryIndexes"] = [
            {
                "IndexName": path.index,
                "KeySchema": _key_schema(layout.space, path.attribute),
                "Projection": {"ProjectionType": "ALL"},
            }
            for path in layout.paths
        ]
    return definition


def log_table(table: str) -> dict[str, Any]:
    return {
        "TableName": log.table_of(table),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in ("space", "key")
        ],
        "KeySchema": _key_schema("space", "key"),
    }


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


async def _prepare_table(client: Any, definition: dict[str, Any], create: bool) -> None:
    name = definition["TableName"]
    table = await _describe(client, name)
    if table is None and not create:
        raise UsageError(
            "The table does not exist; create it, or open the engine with create=true.", table=name
        )
    if table is None:
        await _create(lambda: client.create_table(**definition))
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while table is None or not _is_active(table):
        if asyncio.get_running_loop().time() > deadline:
            raise UnavailableError("The table was not ready in time; try again.", table=name)
        table = await _describe(client, name)
        if table is None or not _is_active(table):
            await asyncio.sleep(POLL_SECONDS)
    _check(table, definition)


async def _describe(client: Any, name: str) -> dict[str, Any] | None:
    try:
        answer = await client.describe_table(TableName=name)
    except Exception as error:
        if is_absent(error):
            return None
        raise
    table: dict[str, Any] = answer["Table"]
    return table


async def _create(create: Callable[[], Awaitable[object]]) -> None:
    try:
        await create()
    except Exception as error:
        if not is_already_created(error):
            raise


def _is_active(table: dict[str, Any]) -> bool:
    indexes = table.get("GlobalSecondaryIndexes", ())
    return table["TableStatus"] == "ACTIVE" and all(
        index["IndexStatus"] == "ACTIVE" for index in indexes
    )


def _check(table: dict[str, Any], definition: dict[str, Any]) -> None:
    """Raise for a table of another program or layout."""
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        existing = {index["IndexName"]: index["KeySchema"] for index in table.get(kind, ())}
        for index in definition.get(kind, ()):
            if existing.get(index["IndexName"]) != index["KeySchema"]:
                raise UsageError(
                    "The table lacks an index of the layout.",
                    table=definition["TableName"],
                    index=index["IndexName"],
                )
    if table["KeySchema"] != definition["KeySchema"]:
        raise UsageError(
            "The table's keys differ from the layout's; use another table.",
            table=definition["TableName"],
        )


async def _enable_ttl(client: Any, table: str, attribute: str) -> None:
    answer = await client.describe_time_to_live(TableName=table)
    if answer["TimeToLiveDescription"].get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        await client.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)
    except Exception:  # another process may have enabled it first
        answer = await client.describe_time_to_live(TableName=table)
        if answer["TimeToLiveDescription"].get("TimeToLiveStatus") not in ("ENABLED", "ENABLING"):
            raise
