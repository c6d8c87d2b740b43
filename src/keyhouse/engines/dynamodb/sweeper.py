"""The sweep: deletes expired rows by a sparse index, and prunes old changes space by space.

Only rows with an expiry are in the index, oldest first in each of its few partitions, so a sweep
reads nothing but expired rows. The index is eventually consistent and only nominates rows: each is
read, and deleted by a commit of its space if it has expired, so that watches see it.

`trimming` decides how many changes a space keeps. No index lists the spaces with more, so a sweep
continues through the list of spaces where the last one stopped, up to a limit. Batch ids are left
to DynamoDB's own TTL, which is free; an old one is ignored even if it still exists.
"""

from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import GET_ITEMS_MAX, Client
from keyhouse.engines.dynamodb.flattening import Item
from keyhouse.engines.dynamodb.items import SHARDS, Items
from keyhouse.engines.dynamodb.pending import DynamodbRemoval
from keyhouse.engines.dynamodb.plan import ROWS_MAX
from keyhouse.engines.dynamodb.reader import Reader
from keyhouse.engines.dynamodb.table import BY_EXPIRY
from keyhouse.engines.dynamodb.trimming import Trimming
from keyhouse.engines.dynamodb.writer import DynamodbWriter
from keyhouse.engines.retention import ChangesKept

PRUNED_SPACES: Final = 1_000
"""Spaces whose heads one sweep reads."""

PRUNE_ENTRIES: Final = 500
"""Log entries deleted at once."""


class Sweeper:
    def __init__(
        self,
        client: Client,
        items: Items,
        table: str,
        clock: Clock,
        reader: Reader,
        writer: DynamodbWriter,
        kept: ChangesKept,
    ) -> None:
        self._client = client
        self._items = items
        self._table = table
        self._log = log.table_of(table)
        self._clock = clock
        self._reader = reader
        self._writer = writer
        self._trimming = Trimming(kept)
        self._shard = 0
        self._space = ""  # where the next prune resumes

    async def sweep(self, limit: int) -> int:
        """Delete up to `limit` expired rows and return their number.

        Each sweep starts with the next partition, so that none starves.
        """
        swept = 0
        for number in range(len(SHARDS)):
            if swept < limit:
                swept += await self._sweep_shard(
                    SHARDS[(self._shard + number) % len(SHARDS)], limit - swept
                )
        self._shard = (self._shard + 1) % len(SHARDS)
        await self._prune()
        return swept

    async def forget(self, space: str, last: str | None) -> None:
        """Delete the items of a space, then its log, then its `last` item. Its name goes last, so
        that an aborted call can be repeated."""
        layout = self._items.layout
        await self._delete_partition(self._table, layout.space, layout.key, space, last)
        await self._delete_partition(self._log, "space", "key", log.partition(space))
        if last is not None:
            await self._delete_partition(self._table, layout.space, layout.key, space)
        await self._client.delete_many(self._log, [log.space_item(space)])

    async def _delete_partition(
        self, table: str, space: str, key: str, name: str, kept: str | None = None
    ) -> None:
        while True:
            answer = await self._client.query(
                TableName=table,
                KeyConditionExpression="#s = :s",
                ProjectionExpression="#s, #k",
                ExpressionAttributeNames={"#s": space, "#k": key},
                ExpressionAttributeValues={":s": {"S": name}},
                Limit=PRUNE_ENTRIES,
            )
            items = [item for item in answer["Items"] if item[key] != {"S": kept}]
            if not items:
                return
            await self._client.delete_many(table, items)

    async def _sweep_shard(self, shard: str, limit: int) -> int:
        swept = 0
        start: Item | None = None
        while True:
            answer = await self._client.query(
                TableName=self._table,
                IndexName=BY_EXPIRY,
                KeyConditionExpression="#w = :w AND #e <= :now",
                ExpressionAttributeNames={
                    "#w": self._items.layout.sweep,
                    "#e": self._items.layout.expires,
                },
                ExpressionAttributeValues={
                    ":w": {"S": shard},
                    ":now": {"N": str(self._clock.now())},
                },
                Limit=limit - swept,
                **({"ExclusiveStartKey": start} if start else {}),
            )
            swept += await self._remove(answer["Items"])
            start = answer.get("LastEvaluatedKey")
            if not start or swept >= limit:
                return swept

    async def _remove(self, proposed: list[dict[str, Any]]) -> int:
        layout = self._items.layout
        keys: dict[str, list[str]] = {}
        for item in proposed:
            keys.setdefault(item[layout.space]["S"], []).append(item[layout.key]["S"])
        removed = 0
        for space, expired in keys.items():
            for first in range(0, len(expired), ROWS_MAX):
                removed += await self._writer.submit(
                    DynamodbRemoval(expired[first : first + ROWS_MAX]), space
                )
        return removed

    async def _prune(self) -> None:
        start = {"space": {"S": log.SPACES}, "key": {"S": self._space}} if self._space else None
        spaces: list[str] = []
        async for item in self._reader.named_spaces(start, PRUNED_SPACES):
            spaces.append(item["key"]["S"])
            if len(spaces) == PRUNED_SPACES:
                break
        self._space = spaces[-1] if len(spaces) == PRUNED_SPACES else ""
        for first in range(0, len(spaces), GET_ITEMS_MAX):
            keys = [
                (self._log, log.head_key(space)) for space in spaces[first : first + GET_ITEMS_MAX]
            ]
            for _, item in await self._client.get_many(keys):
                await self._prune_space(
                    item["space"]["S"].removeprefix(log.partition("")), log.head_of(item)
                )
        if not self._space:
            self._trimming.finish_walk(self._clock.now())

    async def _prune_space(self, space: str, head: log.Head) -> None:
        """Raise the retention floor, then delete the entries: a watch never meets an undeclared
        gap."""
        last = self._trimming.floor(space, head)
        if last <= head.pruned:
            return
        await self._client.update(
            TableName=self._log,
            Key=log.head_key(space),
            UpdateExpression="SET #p = :p",
            ConditionExpression="attribute_not_exists(#p) OR #p < :p",
            ExpressionAttributeNames={"#p": "pruned"},
            ExpressionAttributeValues={":p": {"N": str(last)}},
        )
        while entries := await self._reader.entries_up_to(space, last, PRUNE_ENTRIES):
            await self._client.delete_many(
                self._log, [log.entry_key(space, entry.revision) for entry in entries]
            )
