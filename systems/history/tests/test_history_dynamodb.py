"""History on DynamoDB as a team runs it: moved there and back, and throttled under load."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.store import Store, move, verify
from keyhouse.testing.conformance import Opener
from keyhouse_history.schema import SCHEMAS
from systems.history.tests.conftest import dynamodb_settings_of
from systems.history.tests.support.service import EXT, app_of, serving, token, viewing
from tests.sizes import size
from tests.support import engine_openers
from tests.support.dynamodb_tables import THROTTLED, Step, intercept, plain_client, raising

PROFILES = ("ada", "a.b@c-1", "p" * 60)
PATHS = (
    "/facets/asset/all",
    "/facets/asset/resume?limit=3",
    "/facets/asset/watched",
    "/facets/show/1446/all",
    "/facets/show/1446/all?season=1450",
    "/facets/sport/cricket/all?series=4&team=60091",
    "/assets/a1",
    "/assets/a%2F2",
)

EVENTS = size(20, 64, 64)


def fill(opener: Opener, folder: Path) -> None:
    draw = random.Random(5)
    with serving(opener, folder) as service:
        for profile in PROFILES:
            viewer = service.viewer(profile)
            for asset in ("a1", "a/2", "ü|3", *(f"b{n}" for n in range(20))):
                viewer.put(asset, draw.randrange(3_000), draw.choice((5, 50, 99)), ext=EXT)
                viewer.put(asset, draw.randrange(3_000), draw.choice((5, 50, 99)))
            viewer.close()


def answers(opener: Opener, folder: Path) -> list[Any]:
    found: list[Any] = []
    with serving(opener, folder) as service:
        for profile in PROFILES:
            viewer = service.viewer(profile)
            found += [viewer.ask("GET", path) for path in PATHS]
            viewer.close()

        async def findings(engine: Engine) -> list[Any]:
            stores = [Store(SCHEMAS[0], engine, profile) for profile in PROFILES]
            return [finding for store in stores async for finding in verify(store)]

        assert service.on_engine(findings) == []
    return found


def moved(source: Opener, target: Opener) -> int:
    async def main() -> int:
        clock = ManualClock()
        one, other = await source(clock), await target(clock)
        try:
            return (await move(one, other, name="history")).rows
        finally:
            await one.close()
            await other.close()

    return asyncio.run(main())


def test_a_move_to_dynamodb_and_back_changes_no_answer(tmp_path: Path) -> None:
    first, last = (tmp_path / name for name in ("first", "last"))
    first.mkdir()
    last.mkdir()
    sqlite, back = engine_openers.sqlite(first), engine_openers.sqlite(last)
    _, dynamodb = dynamodb_settings_of()
    fill(sqlite, first)
    expected = answers(sqlite, first)
    rows = moved(sqlite, dynamodb)
    assert rows > 200
    assert answers(dynamodb, tmp_path) == expected
    assert moved(dynamodb, back) == rows
    assert answers(back, last) == expected


@contextmanager
def often_throttled(engine: DynamoDBEngine, draw: random.Random) -> Iterator[list[int]]:
    """Refuse a third of all requests, as DynamoDB does above the capacity of a table."""
    refused = [0]

    async def passed(call: Any) -> Any:
        return await call()

    async def refuse(call: Any) -> Any:
        refused[0] += 1
        return await raising(THROTTLED)(call)

    client = intercept(engine)
    for name in ("transact_write_items", "transact_get_items", "get_item", "query"):
        steps: list[Step] = [refuse if draw.random() < 0.33 else passed for _ in range(5_000)]
        client.plan(name, *steps)
    yield refused


@pytest.mark.soak
def test_no_event_is_lost_while_the_table_is_throttled(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await DynamoDBEngine.open(dynamodb_settings_of()[0], clock=ManualClock())
        app = app_of(engine, tmp_path)
        bearer = token(ManualClock(), sub="jobs", scope="history.service")
        todo = [(f"p{n % 4}", f"a{n}") for n in range(EVENTS)]

        async def send(http: httpx.AsyncClient) -> None:
            while todo:
                profile, asset = todo.pop()
                path = f"/profiles/{profile}/assets/{asset}"
                response = await http.put(path, json=viewing(int(asset[1:]), ext=EXT))
                assert response.status_code == 200, response.text

        try:
            with often_throttled(engine, random.Random(3)) as refused:
                async with httpx.AsyncClient(
                    transport=httpx.ASGITransport(app),
                    base_url="http://test/history",
                    headers={"Authorization": f"Bearer {bearer}"},
                    timeout=60,
                ) as http:
                    await asyncio.gather(*(send(http) for _ in range(16)))
                    for n in range(4):
                        listed = (await http.get(f"/profiles/p{n}/facets/asset/all")).json()
                        ids = [entry["attr"]["assetId"] for entry in listed["entries"]]
                        assert ids == [f"a{each}" for each in range(EVENTS - 4 + n, -1, -4)]
            assert refused[0] > EVENTS // 4
            for n in range(4):
                store = Store(SCHEMAS[0], engine, f"p{n}")
                assert [finding async for finding in verify(store)] == []
        finally:
            await engine.close()

    asyncio.run(main())


def test_every_entry_is_a_flat_item_and_foreign_items_break_nothing(tmp_path: Path) -> None:
    where, opener = dynamodb_settings_of()
    foreign: dict[str, Any] = {
        "profileId": {"S": "p"},
        "sortKey": {"S": "IN_PROGRESS|foreign"},
        "a.assetId": {"S": "foreign"},
        "a.assetType": {"S": "movie"},
        "a.totalTime": {"N": "100"},
        "a.state": {"S": "IN_PROGRESS"},
        "a.progress": {"N": "5"},
        "a.updateTime": {"S": "2026-01-18T12:00:00.000Z"},
        "e.sport": {"S": "cricket"},
    }
    junk = {"profileId": {"S": "p"}, "sortKey": {"S": "COMPLETED|junk"}, "x": {"N": "1"}}

    async def items() -> dict[str, Any]:
        async with plain_client() as client:
            found = (await client.scan(TableName=where.table))["Items"]
            return {each["sortKey"]["S"]: each for each in found}

    async def write_items() -> None:
        async with plain_client() as client:
            for item in (foreign, junk):
                await client.put_item(TableName=where.table, Item=item)

    with serving(opener, tmp_path) as service:
        viewer = service.viewer("p")
        for n, progress in enumerate((0, 50, 100, 33.333)):
            viewer.put(f"a{n}", n, progress, ext=EXT)
        viewer.put("large", 9, 50, ext=EXT | {"text": "x" * 20_000})
        stored = asyncio.run(items())
        for key, percentage in (
            ("IN_PROGRESS|a0", "0"),
            ("IN_PROGRESS|a1", "50"),
            ("COMPLETED|a2", "100"),
            ("IN_PROGRESS|a3", "33.33"),
            ("IN_PROGRESS|large", "50"),
        ):
            assert stored[key]["a.progressPercentage"] == {"N": percentage}
            assert stored[key]["path.hierarchy"] == {"S": "/1446/1450"}
            assert stored[key]["path.sport"] == {"S": "/cricket/4"}
        assert stored["COMPLETED|a2"]["m.timestamps"]["L"]
        assert stored["COMPLETED"]["assetIds"] == {"L": [{"S": "a2"}]}
        before = viewer.listed("asset/all")
        asyncio.run(write_items())
        assert viewer.listed("asset/all") == before
        assert viewer.get("foreign")[0]["attr"]["progress"] == 5
        with service.client(sub="jobs", scope="history.service") as jobs:
            assert jobs.post("/profiles/p/reindex").json()["repaired"] > 0
        assert "foreign" in viewer.listed("sport/cricket/all")
        assert viewer.put("foreign", 60, 7)["applied"]
        viewer.ask("DELETE", "", status=204)
        assert asyncio.run(items()) == {}
        viewer.close()
