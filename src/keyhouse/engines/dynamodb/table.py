"""The two tables: made when they are not there, looked at when they are."""

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
"""How long a table may take to be made."""

POLL_SECONDS: Final = 0.5

ATTEMPTS_MAX: Final = 3
"""Tries, when it is too busy or can't be reached in time."""


async def prepare(
    client: Any, table: str, layout: Layout, *, create: bool, native_ttl: bool
) -> None:
    """Both tables, ready. Several processes may do this at once, and one of them again: what is there is left alone."""
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
    for wanted in (rows_table(table, layout), log_table(table)):
        await _prepare_table(client, wanted, create)
        if native_ttl and create:
            await _enable_ttl(
                client, wanted["TableName"], layout.ttl if wanted["TableName"] == table else "ttl"
            )


def rows_table(table: str, layout: Layout) -> dict[str, Any]:
    types = {layout.space: "S", layout.key: "S", layout.sweep: "S", layout.expires: "N"}
    types |= {path.attribute: "S" for path in layout.paths}
    wanted: dict[str, Any] = {
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
        wanted["LocalSecondaryIndexes"] = [
            {
                "IndexName": path.index,
                "KeySchema": _key_schema(layout.space, path.attribute),
                "Projection": {"ProjectionType": "ALL"},
            }
            for path in layout.paths
        ]
    return wanted


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


async def _prepare_table(client: Any, wanted: dict[str, Any], create: bool) -> None:
    name = wanted["TableName"]
    found = await _described(client, name)
    if found is None and not create:
        raise UsageError(
            "The table is not there; make it, or open the engine with create=true.", table=name
        )
    if found is None:
        await _made(lambda: client.create_table(**wanted))
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while found is None or not _is_active(found):
        if asyncio.get_running_loop().time() > deadline:
            raise UnavailableError("The table was not ready in time; try again.", table=name)
        found = await _described(client, name)
        if found is None or not _is_active(found):
            await asyncio.sleep(POLL_SECONDS)
    _check(found, wanted)


async def _described(client: Any, name: str) -> dict[str, Any] | None:
    try:
        answer = await client.describe_table(TableName=name)
    except Exception as error:
        if is_absent(error):
            return None
        raise
    table: dict[str, Any] = answer["Table"]
    return table


async def _made(create: Callable[[], Awaitable[object]]) -> None:
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


def _check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A table of another program, or of another layout, is left alone."""
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        there = {index["IndexName"]: index["KeySchema"] for index in found.get(kind, ())}
        for index in wanted.get(kind, ()):
            if there.get(index["IndexName"]) != index["KeySchema"]:
                raise UsageError(
                    "The table lacks an index of the layout.",
                    table=wanted["TableName"],
                    index=index["IndexName"],
                )
    if found["KeySchema"] != wanted["KeySchema"]:
        raise UsageError(
            "The table has other keys than the layout; name another one.", table=wanted["TableName"]
        )


async def _enable_ttl(client: Any, table: str, attribute: str) -> None:
    answer = await client.describe_time_to_live(TableName=table)
    if answer["TimeToLiveDescription"].get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
        return
    specification = {"Enabled": True, "AttributeName": attribute}
    try:
        await client.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)
    except (
        Exception
    ):  # another process was first: then it is on its way, and else this fails as well
        answer = await client.describe_time_to_live(TableName=table)
        if answer["TimeToLiveDescription"].get("TimeToLiveStatus") not in ("ENABLED", "ENABLING"):
            raise
