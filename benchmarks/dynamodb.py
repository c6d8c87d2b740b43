"""DynamoDB: our commits and reads against the bare driver doing the same work, in the same run.

    python -m benchmarks.dynamodb

Bare, a commit is one TransactWriteItems with the same items: the rows with their revision, the space's head, and an entry of
the log. It checks nothing, and its revisions are a counter of the process. `bare in groups` puts all that waits into one
transaction, as we do. The emulation is started for the run; it takes longer for a request
than the driver does, as AWS would.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from benchmarks.contest import Contestant, contest
from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server

ROUNDS = 7
VALUE = '{"title":"' + "v" * 280 + '"}'
Rows = list[tuple[str, str]]
Commit = Callable[[Rows], Awaitable[object]]
BARE, OURS = "bare", "ours"


def rows(number: int, derived: int) -> Rows:
    """A record of about 300 bytes, and its derived rows."""
    record = [(f"t:{number:012d}:01ARZ3NDEKTSV4RRFFQ69G5FAV", VALUE)]
    return record + [(f"idx:track:{n}:{number:012d}:01ARZ3NDEKTSV4RRFFQ69G5FAV", "1") for n in range(derived)]


class Bare:
    """What a careful person writes with the driver alone, into tables that were made by the engine."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._revisions = count(1)
        self._waiting: list[tuple[Rows, asyncio.Future[None]]] = []
        self._working: asyncio.Future[None] | None = None

    async def one(self, written: Rows) -> None:
        await self._write([written])

    async def in_groups(self, written: Rows) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((written, answer))
        if self._working is None:
            self._working = asyncio.ensure_future(self._serve())
        await answer

    async def _serve(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            size = 96 // len(self._waiting[0][0])
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            await self._write([written for written, _ in group])
            for _, answer in group:
                answer.set_result(None)
            await asyncio.sleep(0)
        self._working = None

    async def _write(self, group: list[Rows]) -> None:
        numbered = [(str(next(self._revisions)), written) for written in group]
        last = numbered[-1][0]
        items: list[dict[str, Any]] = [
            {
                "Update": {
                    "TableName": f"{BARE}.log",
                    "Key": {"space": {"S": "s:s"}, "key": {"S": "head"}},
                    "UpdateExpression": "SET #r = :r",
                    "ExpressionAttributeNames": {"#r": "revision"},
                    "ExpressionAttributeValues": {":r": {"N": last}},
                }
            },
            {
                "Put": {
                    "TableName": f"{BARE}.log",
                    "Item": {
                        "space": {"S": "s:s"},
                        "key": {"S": f"c{last:0>16}"},
                        "changes": {
                            "L": [
                                {"M": {"key": {"S": key}, "revision": {"N": revision}}}
                                for revision, written in numbered
                                for key, _ in written
                            ]
                        },
                    },
                }
            },
        ]
        for revision, written in numbered:
            for key, value in written:
                item = {"space": {"S": "s"}, "key": {"S": key}, "revision": {"N": revision}, "value": {"S": value}}
                items.append({"Put": {"TableName": BARE, "Item": item}})
        await self._client.transact_write_items(TransactItems=items)


def writing(commit: Commit, writers: int, commits: int, derived: int) -> Contestant:
    """Commits per second, of so many writers at once."""

    async def work() -> int:
        async def write(writer: int) -> None:
            for number in range(commits):
                await commit(rows(writer * commits + number, derived))

        await asyncio.gather(*(write(writer) for writer in range(writers)))
        return writers * commits

    return work


def reading(read: Callable[[str], Awaitable[object]], keys: list[str]) -> Contestant:
    async def work() -> int:
        for key in keys:
            await read(key)
        return len(keys)

    return work


async def main() -> None:
    server = dynamodb_server()
    own = {
        "region_name": REGION,
        "endpoint_url": server.endpoint,
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": ACCESS_KEY,
    }
    engines = {name: await _opened(name, server.endpoint) for name in (BARE, OURS)}
    engine = engines[OURS]
    config = AioConfig(max_pool_connections=64, parameter_validation=False, retries={"total_max_attempts": 1})
    async with get_session().create_client("dynamodb", config=config, **own) as client:

        async def ours(written: Rows) -> None:
            await engine.commit("s", Batch(puts=tuple([Put(key, value.encode()) for key, value in written])))

        for writers, commits in ((1, 40), (64, 3)):
            for derived in (0, 5):
                bare = Bare(client)
                contestants = {
                    "ours": writing(ours, writers, commits, derived),
                    "bare": writing(bare.one, writers, commits, derived),
                    "bare in groups": writing(bare.in_groups, writers, commits, derived),
                }
                await show(f"{writers} writers, {derived + 1} rows a commit", contestants)
        await show("reading a row", await _reads(engine, client))
        await show("a page of 100 rows", await _pages(engine, client))
    for each in engines.values():
        await each.close()


async def _reads(engine: DynamoDBEngine, client: Any) -> dict[str, Contestant]:
    keys = [rows(number, 0)[0][0] for number in range(40)]

    async def bare(key: str) -> None:
        await client.get_item(TableName=BARE, Key={"space": {"S": "s"}, "key": {"S": key}}, ConsistentRead=True)

    return {"ours": reading(lambda key: engine.read("s", [key]), keys), "bare": reading(bare, keys)}


async def _pages(engine: DynamoDBEngine, client: Any) -> dict[str, Contestant]:
    """Bare, a page is one Query, that may show two states of the space."""

    async def bare(key: str) -> None:
        await client.query(
            TableName=BARE,
            KeyConditionExpression="#s = :s AND #k >= :k",
            ExpressionAttributeNames={"#s": "space", "#k": "key"},
            ExpressionAttributeValues={":s": {"S": "s"}, ":k": {"S": key}},
            Limit=101,
            ConsistentRead=True,
        )

    return {
        "ours": reading(lambda key: engine.scan("s", Span(key), limit=100), ["t:"] * 15),
        "bare": reading(bare, ["t:"] * 15),
    }


async def _opened(table: str, endpoint: str) -> DynamoDBEngine:
    where = Settings(
        table=table, region=REGION, endpoint=endpoint, access_key_id=ACCESS_KEY, secret_access_key=ACCESS_KEY
    )
    return await DynamoDBEngine.open(where)


async def show(title: str, contestants: dict[str, Contestant]) -> None:
    results = await contest(contestants, rounds=ROUNDS)
    ours = results["ours"].median
    print(f"{title}: ours {ours:,.0f}/s")
    for name, result in results.items():
        if name != "ours":
            print(f"    {name}: {result.median:,.0f}/s, ours is {ours / result.median:.2f} of it")


if __name__ == "__main__":
    asyncio.run(main())
