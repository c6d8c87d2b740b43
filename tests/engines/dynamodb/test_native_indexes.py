"""The queries of the history system's document, by DynamoDB's own indexes, on rows of the store."""

import asyncio
from typing import Any

from keyhouse import Store
from keyhouse.engines.dynamodb import DynamoDBEngine, layout_of
from keyhouse_history.schema import (
    BY_HIERARCHY,
    BY_SPORT,
    ENTRY,
    SCHEMAS,
    Attributes,
    HistoryEntry,
)
from tests.support.dynamodb_tables import plain_client, settings


def entry(asset: str, state: Any = "IN_PROGRESS", **ext: str) -> HistoryEntry:
    """Build an entry; `_` in a name stands for `-`."""
    attributes = Attributes(
        asset_id=asset,
        asset_type="tv-episode",
        total_time=6604,
        state=state,
        progress=2518,
        update_time="2021-01-27T23:37:42.155Z",
    )
    return HistoryEntry(
        attr=attributes, ext={name.replace("_", "-"): text for name, text in ext.items()}
    )


ENTRIES = (
    entry(
        "1981",
        showCategoryId="1446",
        seasonCategoryId="1450",
        sport="cricket",
        series_id="4",
        team_ids="1,2",
    ),
    entry(
        "1982",
        showCategoryId="1446",
        seasonCategoryId="1451",
        sport="cricket",
        series_id="4.1",
        team_ids="2,3",
    ),
    entry(
        "1983",
        "COMPLETED",
        showCategoryId="14460",
        seasonCategoryId="1",
        sport="cricket-t20",
        series_id="4",
    ),
    entry("1984", sport="cricket"),
    entry("1985", showCategoryId="1446"),
    entry("1986"),
)


def test_native_indexes_find_the_same_rows_as_the_store() -> None:
    """By show, by show and season, by sport, by sport and series; names and values contain dots and
    hyphens."""

    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        store = Store(SCHEMAS[0], engine, "profile")
        for each in ENTRIES:
            await store.put(ENTRY, each)
        await Store(SCHEMAS[0], engine, "another").put(ENTRY, ENTRIES[0])

        async with plain_client() as client:

            async def native(path: str, condition: str, text: str) -> list[str]:
                answer = await client.query(
                    TableName=where.table,
                    IndexName=f"{path}-index",
                    KeyConditionExpression=f"profileId = :profile AND {condition}",
                    ExpressionAttributeNames={"#path": path},
                    ExpressionAttributeValues={":profile": {"S": "profile"}, ":path": {"S": text}},
                    ConsistentRead=True,
                )
                return sorted(item["a.assetId"]["S"] for item in answer["Items"])

            async def below(path: str, *parts: str) -> list[str]:
                """Match the path and everything below it: `begins_with` on whole segments."""
                text = "".join(f"/{part}" for part in parts)
                return sorted(
                    await native(path, "#path = :path", text)
                    + await native(path, "begins_with(#path, :path)", text + "/")
                )

            async def ours(by: Any, *parts: str) -> list[str]:
                return sorted(
                    [
                        found.record.attr.asset_id
                        async for found in store.scan(ENTRY, by=by, path=parts)
                    ]
                )

            for parts, assets in {
                ("1446",): ["1981", "1982", "1985"],
                ("1446", "1450"): ["1981"],
                ("14460",): ["1983"],
                ("9",): [],
            }.items():
                assert (
                    await below("path.hierarchy", *parts)
                    == await ours(BY_HIERARCHY, *parts)
                    == assets
                )
            for parts, assets in {
                ("cricket",): ["1981", "1982", "1984"],
                ("cricket", "4"): ["1981"],
                ("cricket", "4.1"): ["1982"],
                ("cricket-t20", "4"): ["1983"],
            }.items():
                assert await below("path.sport", *parts) == await ours(BY_SPORT, *parts) == assets

            # A sport and a team, as the document would ask: a filter on a listed attribute.
            answer = await client.query(
                TableName=where.table,
                IndexName="path.sport-index",
                KeyConditionExpression="profileId = :profile AND begins_with(#path, :path)",
                FilterExpression="contains(#teams, :team)",
                ExpressionAttributeNames={"#path": "path.sport", "#teams": "e.team-ids"},
                ExpressionAttributeValues={
                    ":profile": {"S": "profile"},
                    ":path": {"S": "/cricket/"},
                    ":team": {"S": "2"},
                },
            )
            assert sorted(item["a.assetId"]["S"] for item in answer["Items"]) == ["1981", "1982"]
        await engine.close()

    asyncio.run(scenario())
