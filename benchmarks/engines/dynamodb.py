"""DynamoDB against `aiobotocore`: a commit is one TransactWriteItems with the same items.

The items are the rows with their revision, the space's head, and a log entry. The run starts an
emulation: as on AWS, a request takes longer in the server than in the driver, so this measures the
number of requests, not the speed of DynamoDB.
"""

from itertools import count
from pathlib import Path
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from benchmarks.engines.commits import SPACE, Rows, measure_commits, measure_reads
from keyhouse.bench.result import Result
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, DynamoDBServer

BARE, OURS = "bare", "ours"


class Bare:
    """Careful hand-written code on the driver alone, into tables that the engine made."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._revisions = count(1)

    async def read(self, key: str) -> object:
        reply = await self._client.get_item(
            TableName=BARE, Key={"space": {"S": SPACE}, "key": {"S": key}}, ConsistentRead=True
        )
        return reply.get("Item")

    async def write(self, group: list[Rows]) -> None:
        numbered = [(str(next(self._revisions)), written) for written in group]
        last = numbered[-1][0]
        head = {
            "TableName": f"{BARE}.log",
            "Key": {"space": {"S": "s:s"}, "key": {"S": "head"}},
            "UpdateExpression": "SET #r = :r",
            "ExpressionAttributeNames": {"#r": "revision"},
            "ExpressionAttributeValues": {":r": {"N": last}},
        }
        changes = [
            {"M": {"key": {"S": key}, "revision": {"N": revision}}}
            for revision, written in numbered
            for key, _ in written
        ]
        entry = {"space": {"S": "s:s"}, "key": {"S": f"c{last:0>16}"}, "changes": {"L": changes}}
        items: list[dict[str, Any]] = [
            {"Update": head},
            {"Put": {"TableName": f"{BARE}.log", "Item": entry}},
        ]
        for revision, written in numbered:
            for key, value in written:
                item = {"space": {"S": SPACE}, "key": {"S": key}, "revision": {"N": revision}}
                items.append(
                    {"Put": {"TableName": BARE, "Item": item | {"value": {"S": value.decode()}}}}
                )
        await self._client.transact_write_items(TransactItems=items)


async def measure(folder: Path, rounds: int, *, quick: bool) -> list[Result]:
    server = DynamoDBServer()
    try:
        return await _measure(server.endpoint, rounds, quick)
    finally:
        server.close()


async def _measure(endpoint: str, rounds: int, quick: bool) -> list[Result]:
    engines = {name: await _open(name, endpoint) for name in (BARE, OURS)}
    config = AioConfig(
        max_pool_connections=64, parameter_validation=False, retries={"total_max_attempts": 1}
    )
    async with get_session().create_client(
        "dynamodb",
        config=config,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=ACCESS_KEY,
    ) as client:
        bare, ours = Bare(client), engines[OURS]
        alone = 10 if quick else 40
        results = await measure_commits(
            "dynamodb", ours, bare.write, rounds=rounds, alone=alone, each=3, rows_max=96
        )
        results += await measure_reads(
            "dynamodb", ours, bare.read, rounds=rounds, alone=alone, each=2
        )
    for each in engines.values():
        await each.close()
    return results


async def _open(table: str, endpoint: str) -> DynamoDBEngine:
    settings = Settings(
        table=table,
        region=REGION,
        endpoint=endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=ACCESS_KEY,
    )
    return await DynamoDBEngine.open(settings)
