"""Members of a value that the schema of the service does not know, over HTTP, NATS and a client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from keyhouse import Index, Record, RemoteStore, Schema, Space, per_write
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import Served, serving
from tests.support.engine_openers import sqlite


class Part(msgspec.Struct):
    name: str
    note: str = ""


class Toy(msgspec.Struct):
    id: str
    name: str = "toy"
    parts: list[Part] = []
    by_name: dict[str, Part] = {}
    secret: str = ""


class NewerToy(Toy):
    """A toy of a newer program."""

    colour: str = ""


class Loose(msgspec.Struct):
    id: str
    part: Part | None = None
    others: dict[str, Any] = {}


BY_NAME = Index("idx:toy:name:{name}:{id}")
TOY = Record(Toy, "toy:{id}", BY_NAME, name="toy", private=("secret",), unknown="keep")
STRICT = Record(Toy, "strict:{id}", name="strict")
LOOSE = Record(Loose, "loose:{id}", name="loose", unknown="others")
LENT = Record(Toy, "lent:{id}", name="lent", expiry=per_write(), unknown="keep")
SHOP = Schema("shop", TOY, STRICT, LOOSE, LENT, space=Space("a shop"))
NEWER = Record(NewerToy, "toy:{id}", name="toy", private=("secret",), unknown="keep")
NEWER_SHOP = Schema("shop", NEWER, space=Space("a shop"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("shop")
    with serving(sqlite(folder), folder, SHOP) as running:
        yield running


@pytest.fixture
def http(served: Served, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with served.client(request.function.__name__) as client:
        yield client


def test_a_record_that_keeps_unknown_members_takes_new_ones(http: httpx.Client) -> None:
    """`colour` was a 422, although the record was declared to keep it."""
    part = {"name": "wheel", "size": 3}
    value = {"id": "a", "colour": "red", "parts": [part], "by_name": {"x": part}}
    shown = {
        "id": "a",
        "name": "toy",
        "parts": [{"name": "wheel", "note": "", "size": 3}],
        "by_name": {"x": {"name": "wheel", "note": "", "size": 3}},
        "colour": "red",
    }
    created = http.post("/records/toy", json=value)
    assert created.status_code == 201 and created.json()["value"] == shown
    assert http.get("/records/toy/a").json()["value"] == shown
    assert http.get("/records/toy").json()["items"][0]["value"] == shown
    assert http.get("/records/toy?by=name&name=toy").json()["items"][0]["value"] == shown


def test_a_put_keeps_unknown_members_that_it_leaves_out(http: httpx.Client) -> None:
    http.put("/records/toy/a", json={"colour": "red", "size": 1, "secret": "s"})
    changed = http.put("/records/toy/a", json={"name": "car", "size": 2}).json()["value"]
    assert changed == {
        **{"id": "a", "name": "car", "parts": [], "by_name": {}},
        **{"colour": "red", "size": 2},
    }


def test_a_patch_sets_and_removes_unknown_members(http: httpx.Client) -> None:
    http.put("/records/toy/a", json={"colour": "red", "size": {"x": 1, "y": 2}})
    patched = http.patch("/records/toy/a", json={"colour": None, "size": {"x": None}, "new": [1]})
    value = patched.json()["value"]
    assert patched.status_code == 200
    assert "colour" not in value and value["size"] == {"y": 2} and value["new"] == [1]
    assert http.get("/records/toy/a").json()["value"] == value


def test_a_batch_keeps_unknown_members(http: httpx.Client) -> None:
    target = {"record": "toy", "fields": {"id": "a"}}
    operations = [
        {"op": "put", **target, "value": {"colour": "red", "size": 1}},
        {"op": "patch", **target, "value": {"size": None, "name": "car"}},
    ]
    answer = http.post("/batch", json={"operations": operations})
    assert answer.status_code == 200, answer.text
    value = http.get("/records/toy/a").json()["value"]
    assert value["colour"] == "red" and value["name"] == "car" and "size" not in value


@pytest.mark.parametrize(
    ("value", "member"),
    [
        ({"colour": "red"}, "colour"),
        ({"parts": [{"name": "x"}, {"name": "y", "size": 1}]}, "parts[1].size"),
        ({"by_name": {"x": {"name": "x", "size": 1}}}, "by_name.x.size"),
    ],
)
def test_an_unknown_member_is_an_error_elsewhere(
    http: httpx.Client, value: dict[str, Any], member: str
) -> None:
    """One inside of a map of Structs was dropped without a word."""
    for path in ("put", "patch"):
        if path == "patch":
            http.put("/records/strict/a", json={})
        answer = getattr(http, path)("/records/strict/a", json=value)
        assert answer.status_code == 422 and answer.json()["fields"]["member"] == member


def test_an_attribute_carries_only_members_of_the_top(http: httpx.Client) -> None:
    """A member of a nested Struct was dropped without a word."""
    kept = http.put("/records/loose/a", json={"colour": "red"}).json()["value"]
    assert kept["colour"] == "red"
    lost = http.put("/records/loose/a", json={"part": {"name": "x", "size": 1}})
    assert lost.status_code == 422 and lost.json()["fields"]["member"] == "part.size"


def test_the_document_says_where_members_may_be_added(served: Served) -> None:
    document = httpx.get(served.url + "/openapi.json", timeout=30).json()
    schemas = document["components"]["schemas"]
    assert schemas["NewStrict"]["additionalProperties"] is False
    assert schemas["NewToy"].get("additionalProperties", True) is True
    assert schemas["NewLoose"].get("additionalProperties", True) is True


def test_unknown_members_are_kept_over_nats(tmp_path: Path) -> None:
    at = {"record": "toy", "fields": {"id": "a"}}

    async def scenario() -> None:
        async with called("sqlite", tmp_path, SHOP) as call:
            put = await call("put", {**at, "value": {"colour": "red", "size": 1}})
            assert put["value"]["colour"] == "red"
            patched = await call("patch", {**at, "value": {"size": None}})
            assert "size" not in patched["value"]
            assert (await call("get", at))["value"]["colour"] == "red"

    asyncio.run(scenario())


def test_a_newer_client_reads_back_what_it_wrote(served: Served) -> None:
    """The older service rejected its new member; hidden, a read and a put would have lost it."""

    async def story() -> None:
        async with RemoteStore(NEWER_SHOP, served.url, served.token("newer")) as store:
            toy = NewerToy(id="a", colour="red", secret="s")
            assert (await store.put(NEWER, toy)).record == toy
            found = await store.get(NEWER, id="a")
            assert found is not None and found.colour == "red"
            async for event in store.watch(NEWER, since=0):
                assert event.record is not None and event.record.colour == "red"
                break
        async with RemoteStore(SHOP, served.url, served.token("newer")) as store:
            older = await store.get(TOY, id="a")
            assert older == Toy(id="a")
            await store.put(TOY, Toy(id="a", name="car"))

            async def rename(tx: Any) -> None:
                await tx.update(TOY, {"name": "bus", "size": 1}, id="a")
                await tx.update(TOY, {"parts": [{"name": "wheel"}]}, id="a")
                assert (await tx.get(TOY, id="a")).name == "bus"

            await store.transact(rename)
        async with RemoteStore(NEWER_SHOP, served.url, served.token("newer")) as store:
            entry = await store.entry(NEWER, id="a")
            assert entry is not None and entry.stored is not None
            assert entry.record == NewerToy(
                id="a", name="bus", colour="red", parts=[Part(name="wheel")]
            )
            assert msgspec.json.decode(entry.stored)["size"] == 1

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_update_in_a_transaction_keeps_the_ttl(served: Served) -> None:
    """It wrote the whole record, without the TTL that it had."""

    async def story() -> None:
        async with RemoteStore(SHOP, served.url, served.token("lent")) as store:
            first = await store.put(LENT, Toy(id="a"), ttl=1_000)
            await store.transact(lambda tx: tx.update(LENT, {"name": "car"}, id="a"))
            found = await store.entry(LENT, id="a")
            assert found is not None and found.expires == first.expires
            longer = await store.update(LENT, {"name": "bus"}, ttl=5_000, id="a")
            assert first.expires is not None and longer.expires is not None
            assert longer.expires > first.expires and longer.record.name == "bus"

    asyncio.run(asyncio.wait_for(story(), 60))
