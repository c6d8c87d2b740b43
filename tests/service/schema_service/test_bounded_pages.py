"""Pages of large records: bounded in bytes, also after small ones, and charged to the rate."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http.read_meter import read_meter, report_read
from keyhouse.operations import reads, writes
from keyhouse.operations.bounded_page import STEP_BYTES, BoundedPages
from keyhouse.operations.catalog import Catalog
from keyhouse.operations.limits import SERVED_PAGE_BYTES_MAX
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.usage import Quota
from keyhouse.store import Store, first_entries, page_within
from keyhouse.store.reads.long_read import LongRead
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.recipes import BOX, NOTE, RECIPE, Recipe
from tests.service.schema_service.support.served import Served, serving
from tests.support.engine_openers import memory

RECORD_BYTES = 300_000
PAGE_BYTES = SERVED_PAGE_BYTES_MAX + RECORD_BYTES + 50_000
"""A page ends with the record that reaches its bytes."""

LARGE = "x" * RECORD_BYTES
SMALL_COUNT = 60
LARGE_COUNT = 40


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(memory(tmp_path), tmp_path, rate_per_second=1, rate_burst=600) as each:
        yield each


@pytest.fixture
def box(served: Served) -> httpx.Client:
    """Return a client of a space whose first records are small, and the others large."""
    client = served.client("ann")
    for number in range(SMALL_COUNT):
        assert client.put(f"/records/recipe/a{number:03d}", json=recipe("")).status_code == 201
    for number in range(LARGE_COUNT):
        assert client.put(f"/records/recipe/b{number:03d}", json=recipe(LARGE)).status_code == 201
    return client


def recipe(note: str) -> dict[str, Any]:
    number = next(_numbers)
    return {"title": "t", "slug": f"s{number}", "minutes": number, "note": note}


_numbers = iter(range(100_000))


@pytest.mark.parametrize("by", [{}, {"by": "minutes"}])
def test_large_records_after_small_ones_do_not_exceed_a_page(
    served: Served, box: httpx.Client, by: dict[str, str]
) -> None:
    """50 records of 380 KiB were read and encoded in one step, sized by the small ones."""
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while len(ids) < SMALL_COUNT + LARGE_COUNT:
        served.clock.advance(seconds=10_000)
        response = box.get("/records/recipe", params={"limit": 500, **by, **cursor})
        assert len(response.content) <= PAGE_BYTES
        page = response.json()
        ids += [item["fields"]["id"] for item in page["items"]]
        cursor = {"cursor": page.get("cursor", "")}
    assert ids == [f"a{number:03d}" for number in range(SMALL_COUNT)] + [
        f"b{number:03d}" for number in range(LARGE_COUNT)
    ]
    assert not cursor["cursor"]


def test_one_large_record_asked_for_often_does_not_exceed_a_page(box: httpx.Client) -> None:
    asked = [{"id": "a000"}] * 50 + [{"id": "b000"}] * 225 + [{"id": "none"}, {"id": "b001"}] * 112
    box.post("/get-many/recipe", json={"addresses": [{"id": "a000"}] * 100})
    response = box.post("/get-many/recipe", json={"addresses": asked})
    assert len(response.content) <= PAGE_BYTES
    items = response.json()["items"]
    assert 50 < len(items) < 100
    for address, item in zip(asked, items, strict=False):
        assert item["fields"] == address


def test_addresses_that_repeat_have_the_items_of_their_places(box: httpx.Client) -> None:
    asked = [f"a{number % 7:03d}" if number % 3 else f"none{number % 5}" for number in range(90)]
    response = box.post("/get-many/recipe", json={"addresses": [{"id": id} for id in asked]})
    found = [item and item["fields"]["id"] for item in response.json()["items"]]
    assert found == [id if id.startswith("a") else None for id in asked]


def test_an_address_is_read_once_in_a_request() -> None:
    async def main() -> None:
        asked: list[str] = []

        async def read(step: LongRead, keys: Any) -> list[Any]:
            asked.extend(kept := keys[: step.fit([10] * len(keys))])
            return list(kept)

        keys = [f"k{number % 120}" for number in range(500)]
        items = await BoundedPages(report_read).read_each("item", read, str, keys)
        assert [bytes(item) for item in items] == [b'"%b"' % key.encode() for key in keys]
        assert sorted(asked) == sorted(set(keys))

    asyncio.run(main())


class Sized(MemoryEngine):
    """Notes the bytes of the largest read by keys, which are all of records."""

    most_bytes = 0

    async def read(self, *arguments: Any, **named: Any) -> Any:
        rows = await super().read(*arguments, **named)
        size = sum(len(row.value) for row in rows if row is not None)
        self.most_bytes = max(self.most_bytes, size)
        return rows


def test_rows_beyond_the_bytes_of_a_step_are_neither_read_nor_decoded() -> None:
    async def main() -> None:
        engine = Sized(ManualClock())
        store = Store(BOX, engine, "ann")
        for number in range(100):
            note = "x" * (100_000 if number >= 10 else 10)
            id = f"{number:03d}"
            await store.put(RECIPE, Recipe(id=id, title="t", slug=id, minutes=number, note=note))
            await store.put(NOTE, note, name=id)
        by_minutes: Any = RECIPE.derived[0]
        engine.most_bytes = 0
        for by in (None, by_minutes):
            step = LongRead(rows=50, bytes_max=STEP_BYTES)
            page = await page_within(store, step, RECIPE, by=by, limit=500)
            assert engine.most_bytes <= STEP_BYTES
            assert len(page.entries) == step.kept == 11 and page.cursor is not None
            assert step.kept_bytes <= STEP_BYTES
            rest = await store.page(RECIPE, by=by, limit=500, cursor=page.cursor)
            assert [entry.record.id for entry in rest.entries] == [
                f"{n:03d}" for n in range(11, 100)
            ]
        step = LongRead(rows=50, bytes_max=STEP_BYTES)
        keys = [f"note:{number:03d}" for number in (1, 500, 99, 98, 97)]
        engine.most_bytes = 0
        found = await first_entries(store, step, NOTE, keys)
        assert engine.most_bytes <= STEP_BYTES
        assert [entry and entry.key for entry in found] == ["note:001", None, "note:099"]

    asyncio.run(main())


def requests_until_limited(ask: Any) -> int:
    for count in range(200):
        if (status := ask().status_code) == 429:
            return count
        assert status == 200
    return 200


def test_lists_and_many_addresses_cost_by_their_rows_and_bytes(
    served: Served, box: httpx.Client
) -> None:
    """A page of 4 MiB counted as one request, and one record at many addresses as one record."""
    addresses = [{"id": f"b{number:03d}"} for number in range(LARGE_COUNT)]
    repeated = addresses[:1] * LARGE_COUNT
    for ask, most in (
        (lambda: box.get("/records/recipe", params={"limit": 500}), 20),
        (lambda: box.post("/get-many/recipe", json={"addresses": addresses}), 20),
        (lambda: box.post("/get-many/recipe", json={"addresses": repeated}), 20),
    ):
        served.clock.advance(seconds=10_000)
        count = requests_until_limited(ask)
        assert count <= most, (count, most)


def test_keys_and_counters_cost_by_their_rows() -> None:
    async def main() -> None:
        read = [0, 0]

        def add(rows: int, size: int) -> None:
            read[0] += rows
            read[1] += size

        served = {each.name: each for each in Catalog(BOX, {}).all("http")}
        space = SchemaSpace("ann", MemoryEngine(ManualClock()), Quota(), schema=BOX)
        for number in range(30):
            await writes.add(space, served["views"], {"id": f"{number:02d}"}, by=1)
        read_meter.set(add)
        await reads.keys(space, served["views"], {}, limit=100)
        assert read == [30, 30 * len("views:00")]
        await reads.get_many(space, served["views"], [{"id": "00"}] * 40)
        assert read[0] == 70

    asyncio.run(main())


def test_a_list_over_nats_costs_by_its_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("memory", tmp_path, rate_per_second=1, rate_burst=100) as call:
            for number in range(3):
                note = {"record": "note", "fields": {"name": f"n{number}"}, "value": LARGE}
                assert (await call("put", note))["success"]
            for _ in range(9):
                page = await call("list", {"record": "note", "fields": {}})
                if not page["success"]:
                    assert "Too many requests" in str(page)
                    return
            raise AssertionError("the rate did not limit lists")

    asyncio.run(scenario())


def test_a_rejection_by_the_rate_is_delayed_over_nats_too(tmp_path: Path) -> None:
    """A client that repeated at once had thousands of rejections a second computed for it."""

    async def scenario() -> None:
        async with called("memory", tmp_path, rate_per_second=0.001, rate_burst=1) as call:
            assert (await call("list", {"record": "note", "fields": {}}))["success"]
            now = asyncio.get_running_loop().time  # a token returns after minutes only
            started = now()
            assert not (await call("list", {"record": "note", "fields": {}}))["success"]
            assert now() - started > 0.09

    asyncio.run(scenario())


def test_pages_over_nats_end_before_a_reply_is_too_large(tmp_path: Path) -> None:
    """4 MiB were read for each page, and again half of them, until a reply could hold it."""

    async def scenario() -> None:
        async with called("memory", tmp_path) as call:
            names = [f"n{number}" for number in range(9)]
            for name in names:
                note = {"record": "note", "fields": {"name": name}, "value": LARGE}
                assert (await call("put", note))["success"]
            listed: list[str] = []
            cursor = None
            while len(listed) < len(names):
                page = await call("list", {"record": "note", "limit": 500, "cursor": cursor})
                assert 1 <= len(page["items"]) <= 2
                listed += [item["fields"]["name"] for item in page["items"]]
                cursor = page.get("cursor")
            assert listed == names and cursor is None
            addresses = [{"name": "none"}, *({"name": name} for name in names)]
            found = await call("get_many", {"record": "note", "addresses": addresses})
            assert [item and item["fields"]["name"] for item in found["items"]] == [
                None,
                "n0",
                "n1",
            ]

    asyncio.run(scenario())
