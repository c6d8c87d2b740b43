"""Counts, summaries, sums of days, keys and the clearing of a space, over HTTP and NATS."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import ENGINES, Served, serving
from tests.support.engine_openers import memory


@pytest.fixture
def box(served: Served, request: Any) -> Iterator[httpx.Client]:
    with served.client(f"t{abs(hash(request.node.name))}") as client:
        for id, tags in (("pie", ["hot", "sweet"]), ("soup", ["hot"]), ("tea", ["hot"])):
            value = {"title": id, "slug": id, "tags": tags, "minutes": len(id), "secret": "s"}
            assert client.put(f"/records/recipe/{id}", json=value).status_code == 201
        yield client


def value(box: httpx.Client, path: str) -> Any:
    response = box.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_record_count_is_read_by_its_fields(box: httpx.Client) -> None:
    path = "/record-counts/recipe?by=tag_count"
    assert value(box, f"{path}&tag=hot") == {"value": 3}
    assert value(box, f"{path}&tag=none") == {"value": 0}
    box.delete("/records/recipe/soup")
    assert value(box, f"{path}&tag=hot") == {"value": 2}
    for wrong in (path, "/record-counts/recipe?by=tagged&tag=hot", f"{path}&tag=a&more=b"):
        assert box.get(wrong).status_code == 400, wrong
    assert box.get("/record-counts/draft?by=tag_count").status_code == 404


def test_the_members_of_a_summary(box: httpx.Client) -> None:
    path = "/members/recipe?by=tagged"
    assert value(box, f"{path}&tag=hot") == {"members": {"pie": None, "soup": None, "tea": None}}
    assert value(box, f"{path}&tag=none") == {"members": {}}
    assert box.get(path).status_code == 400


def test_a_counter_by_day_is_summed(box: httpx.Client) -> None:
    operations = [
        {"op": "add", "counter": "visits", "fields": {"id": "pie"}, "by": 3},
        {"op": "add", "counter": "visits", "fields": {"id": "pie", "day": "1999-01-01"}, "by": 5},
    ]
    assert box.post("/batch", json={"operations": operations}).status_code == 200
    assert value(box, "/sums/visits?days=7&id=pie") == {"value": 3}
    assert value(box, "/counters/visits/pie/1999-01-01") == {"value": 5}
    for wrong in ("/sums/visits?id=pie", "/sums/visits?days=0&id=pie", "/sums/visits?days=7"):
        assert box.get(wrong).status_code == 400, wrong
    assert box.get("/sums/views?days=7&id=pie").status_code == 404


def test_keys_are_listed_without_values(box: httpx.Client) -> None:
    assert value(box, "/keys/recipe") == {"keys": ["recipe:pie", "recipe:soup", "recipe:tea"]}
    first = value(box, "/keys/recipe?limit=2&order=desc")
    assert first["keys"] == ["recipe:tea", "recipe:soup"]
    assert value(box, f"/keys/recipe?limit=2&order=desc&cursor={first['cursor']}") == {
        "keys": ["recipe:pie"]
    }
    assert value(box, "/keys/recipe?by=minutes&minutes.from=4")["keys"] == [
        "idx:recipe:minutes:00004:soup"
    ]
    assert len(value(box, "/keys/recipe?by=tag_count")["keys"]) == 2
    assert box.get("/keys/recipe?limit=1001").status_code == 400
    assert box.get("/keys/recipe?by=nothing").status_code == 400


def test_keys_that_hold_private_members_are_not_listed(box: httpx.Client) -> None:
    refused = box.get("/keys/recipe?by=secret")
    assert refused.status_code == 403
    assert "private members" in refused.json()["detail"]


def test_a_space_is_cleared_and_its_neighbor_stays(served: Served, box: httpx.Client) -> None:
    box.post("/counters/views/pie", json={"by": 3})
    with served.client("neighbor-of-the-cleared") as other:
        other.put("/records/recipe/pie", json={"title": "p", "slug": "p"})
        assert box.post("/clear").json() == {"deleted": 4, "more": False}
        assert value(box, "/keys/recipe") == {"keys": []}
        assert value(box, "/record-counts/recipe?by=tag_count&tag=hot") == {"value": 0}
        assert value(other, "/keys/recipe") == {"keys": ["recipe:pie"]}
    assert served.client("t", "read").post("/clear").status_code == 403


def test_a_space_with_a_protected_record_is_not_cleared(tmp_path: Path) -> None:
    for closed in ({"http": False}, {"read_only": True}):
        with serving(memory(tmp_path), tmp_path, records={"note": closed}) as served:
            box = served.client()
            box.put("/records/recipe/pie", json={"title": "p", "slug": "p"})
            refused = box.post("/clear")
            assert refused.status_code == 403 and "note" in refused.text
            assert box.get("/records/recipe/pie").status_code == 200


def test_clearing_frees_the_quota(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, quota_keys=12) as served:
        box = served.client()
        names = iter(range(1_000))
        while box.put(f"/records/note/{next(names)}", json="x").status_code == 201:
            pass
        assert box.post("/clear").status_code == 200
        assert box.put("/records/note/again", json="x").status_code == 201


@pytest.mark.parametrize("kind", ENGINES)
def test_the_same_over_nats(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called(kind, tmp_path) as call:
            for id in ("pie", "soup"):
                recipe = {"id": id, "title": id, "slug": id, "tags": ["hot"], "secret": "s"}
                await call("put", {"record": "recipe", "value": recipe})
            row = {"record": "recipe", "fields": {"tag": "hot"}}
            count = await call("record_count", {**row, "by": "tag_count"})
            assert count == {"success": True, "value": 2}
            members = await call("members", {**row, "by": "tagged"})
            assert members["members"] == {"pie": None, "soup": None}
            await call("add", {"counter": "visits", "fields": {"id": "pie"}, "by": 3})
            total = {"counter": "visits", "fields": {"id": "pie"}, "days": 7}
            assert (await call("sum_of_days", total))["value"] == 3
            keys = await call("keys", {"record": "recipe", "limit": 1})
            assert keys["keys"] == ["recipe:pie"] and keys["cursor"]
            for operation, body in (
                ("record_count", {**row, "by": "tagged"}),
                ("members", {**row, "by": "none"}),
                ("sum_of_days", {"counter": "visits", "fields": {"id": "pie"}}),
                ("sum_of_days", {**total, "days": 0}),
                ("keys", {"record": "recipe", "by": "secret"}),
                ("keys", {"record": "nothing"}),
            ):
                assert not (await call(operation, body))["success"], (operation, body)
            assert (await call("clear", {}))["deleted"] == 3
            assert (await call("keys", {"record": "recipe"}))["keys"] == []

    asyncio.run(scenario())


def test_several_records_are_read_by_one_request(box: httpx.Client) -> None:
    addresses = [{"id": "tea"}, {"id": "none"}, {"id": "pie"}, {"id": "tea"}]
    found = box.post("/get-many/recipe", json={"addresses": addresses})
    items = found.json()["items"]
    assert found.status_code == 200
    assert [item and item["fields"]["id"] for item in items] == ["tea", None, "pie", "tea"]
    assert items[0] == box.get("/records/recipe/tea").json() and "secret" not in items[0]["value"]
    box.post("/counters/views/pie", json={"by": 2})
    counted = box.post("/get-many/views", json={"addresses": [{"id": "pie"}, {"id": "x"}]})
    assert counted.json() == {"items": [{"value": 2}, {"value": 0}]}
    event = box.post("/logs/cooked", json={"recipe": "pie", "stars": 4}).json()
    events = box.post("/get-many/cooked", json={"addresses": [event["fields"]]}).json()["items"]
    assert [each["value"] for each in events] == [event["value"]]


@pytest.mark.parametrize(
    ("addresses", "status"),
    [
        ([], 422),
        ([{"id": "pie"}] * 501, 422),
        ([{"id": "pie", "slug": "x"}], 400),
        ([{}], 400),
        ([{"id": 3}], 400),
        ({"id": "pie"}, 422),
    ],
)
def test_wrong_addresses_are_rejected(box: httpx.Client, addresses: Any, status: int) -> None:
    found = box.post("/get-many/recipe", json={"addresses": addresses})
    assert found.status_code == status, found.text


def test_many_records_are_read_by_those_who_may_read(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, records={"hidden": {"http": False}}) as served:
        body = {"addresses": [{"name": "a"}]}
        assert served.client("ann", "write").post("/get-many/note", json=body).status_code == 403
        assert served.client("ann", "read").post("/get-many/note", json=body).status_code == 200
        assert served.client().post("/get-many/hidden", json=body).status_code == 403


@pytest.mark.parametrize("kind", ENGINES)
def test_several_records_are_read_over_nats(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called(kind, tmp_path) as call:
            for at in range(6):
                note = {"record": "note", "fields": {"name": f"n{at}"}, "value": "x" * 300_000}
                assert (await call("put", note))["success"]
            addresses = [{"name": f"n{at}"} for at in range(6)]
            found = await call("get_many", {"record": "note", "addresses": addresses})
            names = [item["fields"]["name"] for item in found["items"]]
            assert 0 < len(names) < 6 and names == [f"n{at}" for at in range(len(names))]
            rest = await call("get_many", {"record": "note", "addresses": [{"name": "none"}]})
            assert rest == {"success": True, "items": [None]}
            for body in ({"record": "note"}, {"record": "note", "addresses": []}, {}):
                assert not (await call("get_many", body))["success"]

    asyncio.run(scenario())
