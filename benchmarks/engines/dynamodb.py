"""DynamoDB against `aiobotocore`: a commit is one TransactWriteItems with the same items: the rows with their revision, the
space's head, and an entry of the log. The emulation is started for the run: a request takes longer in it than in the
driver, as on AWS, so what is seen here is how many requests there are, not how fast DynamoDB is."""

from itertools import count
from pathlib import Path
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from benchmarks.engines.commits import SPACE, Rows, measure_commits, measure_reads
from keyhouse.bench.figure import Figure
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, DynamoDBServer

BARE, OURS = "bare", "ours"


class Bare:
    """What a careful person writes with the driver alone, into tables that were made by the engine."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._revisions = count(1)

    async def read(self, key: str) -> object:
        answer = await self._client.get_item(
            TableName=BARE, Key={"space": {"S": SPACE}, "key": {"S": key}}, ConsistentRead=True
        )
        return answer.get("Item")

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


async def measure(folder: Path, rounds: int, *, quick: bool) -> list[Figure]:
    server = DynamoDBServer()
    try:
        return await _measured(server.endpoint, rounds, quick)
    finally:
        server.close()


async def _measured(endpoint: str, rounds: int, quick: bool) -> list[Figure]:
    engines = {name: await _opened(name, endpoint) for name in (BARE, OURS)}
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
        figures = await measure_commits(
            "dynamodb", ours, bare.write, rounds=rounds, alone=alone, each=3, rows_max=96
        )
        figures += await measure_reads(
            "dynamodb", ours, bare.read, rounds=rounds, alone=alone, each=2
        )
    for each in engines.values():
        await each.close()
    return figures


async def _opened(table: str, endpoint: str) -> DynamoDBEngine:
    where = Settings(
        table=table,
        region=REGION,
        endpoint=endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=ACCESS_KEY,
    )
    return await DynamoDBEngine.open(where)
