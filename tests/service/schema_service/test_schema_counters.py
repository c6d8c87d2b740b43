"""Adds of a served schema answer with the value that they made: each value once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse import Counter, Schema, Space, fixed
from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import CounterError
from keyhouse.limits import COUNTER_MAX
from keyhouse.operations.catalog import Catalog
from keyhouse.operations.writes import add
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.usage import Quota
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.recipes import BOX
from tests.service.schema_service.support.served import Served
from tests.support.engine_openers import ALL

TICKETS = Counter("tickets:{id}")
DAILY = Counter("daily:{id}:{day:date}")
WINDOW = Counter("window:{id}", expiry=fixed(3_600))
SCHEMA = Schema("counted", TICKETS, DAILY, WINDOW, space=Space("a person"))
CATALOG = Catalog(SCHEMA, {})
COUNTERS = {"tickets": {"id": "a"}, "daily": {"id": "a"}, "window": {"id": "a"}}


async def on_engine(kind: str, folder: Path, work: Callable[[Engine], Awaitable[None]]) -> None:
    engine = await ALL[kind](folder)(ManualClock())
    try:
        await work(engine)
    finally:
        await engine.close()


def space(engine: Engine, keys: int = 0, bytes: int = 0) -> SchemaSpace:
    return SchemaSpace("ann", engine, Quota(keys, bytes), schema=SCHEMA)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("counter", COUNTERS)
def test_concurrent_adds_of_several_processes_never_get_the_same_value(
    kind: str, counter: str, tmp_path: Path
) -> None:
    """160 adds of 1 had 92 different answers: each add read the counter after its commit."""
    served, fields = CATALOG.find("http", counter), COUNTERS[counter]

    async def scenario(engine: Engine) -> None:
        processes = [space(engine), space(engine), space(engine, keys=100)]
        adds = [add(processes[at % 3], served, fields, by=1) for at in range(60)]
        keyed = [add(processes[at % 3], served, fields, by=1, key=f"k{at}") for at in range(9)]
        blind = [add(processes[0], served, fields, by=1, shows_value=False) for _ in range(3)]
        values = [each.value for each in await asyncio.gather(*adds, *keyed, *blind)]
        shown = [value for value in values if isinstance(value, int)]
        assert len(shown) == len(set(shown)) == 69 and max(shown) <= 72
        record: Any = served.record
        today = record.address_of(fields, engine.clock.now())
        assert await processes[0].store.get(record, **today) == 72

    asyncio.run(on_engine(kind, tmp_path, scenario))


@pytest.mark.parametrize("kind", ALL)
def test_the_same_idempotency_key_at_once_is_one_add(kind: str, tmp_path: Path) -> None:
    served, fields = CATALOG.find("http", "tickets"), {"id": "a"}

    async def scenario(engine: Engine) -> None:
        processes = [space(engine), space(engine)]
        adds = [add(processes[at % 2], served, fields, by=5, key="one") for at in range(8)]
        assert {each.value for each in await asyncio.gather(*adds)} == {5}
        assert (await add(processes[0], served, fields, by=1)).value == 6
        assert (await add(processes[1], served, fields, by=5, key="one")).value == 6

    asyncio.run(on_engine(kind, tmp_path, scenario))


def test_an_add_that_would_overflow_fails_alone_among_those_that_share_its_commit(
    tmp_path: Path,
) -> None:
    served, fields = CATALOG.find("http", "tickets"), {"id": "a"}

    async def scenario(engine: Engine) -> None:
        operations = space(engine)
        amounts = (1, 1, COUNTER_MAX, 1, COUNTER_MAX, 1)
        adds = [add(operations, served, fields, by=by) for by in amounts]
        results = await asyncio.gather(*adds, return_exceptions=True)
        assert [type(each) is CounterError for each in results] == [
            by == COUNTER_MAX for by in amounts
        ]
        assert [each.value for each in results if not isinstance(each, BaseException)] == [
            *(1, 2, 3, 4)
        ]

    asyncio.run(on_engine("memory", tmp_path, scenario))


def test_concurrent_adds_over_http_answer_with_their_own_values(served: Served) -> None:
    async def scenario() -> list[int]:
        headers = {"Authorization": f"Bearer {served.token('adders')}"}
        async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
            adds = [client.post("/counters/views/pie", json={"by": 1}) for _ in range(60)]
            return [each.json()["value"] for each in await asyncio.gather(*adds)]

    assert sorted(asyncio.run(scenario())) == list(range(1, 61))


def test_concurrent_adds_over_nats_answer_with_their_own_values(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("memory", tmp_path, BOX) as call:
            body = {"counter": "views", "fields": {"id": "pie"}, "by": 1}
            values = await asyncio.gather(*[call("add", body) for _ in range(100)])
            assert sorted(each["value"] for each in values) == list(range(1, 101))

    asyncio.run(scenario())


def test_counters_are_listed_with_their_values(served: Served) -> None:
    """`GET /counters/points` was a 404: a client had to know every key."""
    with served.client("lister") as box:
        for id, by in (("soup", 1), ("pie", 3), ("pudding", 2)):
            box.post(f"/counters/views/{id}", json={"by": by})
        found = box.get("/counters/views").json()
        assert [(item["fields"]["id"], item["value"]) for item in found["items"]] == [
            *(("pie", 3), ("pudding", 2), ("soup", 1))
        ]
        first = box.get("/counters/views?id.prefix=p&limit=1").json()
        assert [item["value"] for item in first["items"]] == [3]
        rest = box.get(f"/counters/views?id.prefix=p&limit=1&cursor={first['cursor']}").json()
        assert [item["key"] for item in rest["items"]] == ["views:pudding"]
        assert box.get("/counters/views?by=x").status_code == 400


def test_counters_are_listed_over_nats(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("memory", tmp_path, BOX) as call:
            await call("add", {"counter": "views", "fields": {"id": "pie"}, "by": 2})
            found = await call("list", {"counter": "views", "fields": {"id.prefix": "p"}})
            assert [(item["key"], item["value"]) for item in found["items"]] == [("views:pie", 2)]

    asyncio.run(scenario())
