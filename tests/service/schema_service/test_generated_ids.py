"""A ULID that is left out of a new record is generated, in the library and in a service."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    Index,
    ManualClock,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    Transaction,
    UlidSource,
)
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyFieldError
from keyhouse.keys import Ulid
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import Served, serving
from tests.support.engine_openers import memory
from tests.support.nats_servers import nats_server


class Clip(Struct, kw_only=True):
    id: str = ""
    title: str


class Reply(Struct, kw_only=True):
    clip: str
    id: str = ""
    text: str = ""


class Given(Struct, kw_only=True):
    id: str
    title: str = ""


BY_TITLE = Index("idx:clip:title:{title}:{id}")
CLIP = Record(Clip, "clip:{id:ulid}", BY_TITLE)
REPLY = Record(Reply, "reply:{clip:ulid}:{id:ulid}")
GIVEN = Record(Given, "given:{id:ulid}")
CLIPS = Schema("clips", CLIP, REPLY, GIVEN, space=Space("a person"))


def store(seed: int = 7) -> Store:
    clock = ManualClock()
    return Store(CLIPS, MemoryEngine(clock), "ann", ids=UlidSource(clock, seed=seed))


def test_the_store_fills_an_id_that_is_left_out() -> None:
    async def main() -> list[str]:
        own = store()
        first = await own.put(CLIP, Clip(title="a"))
        many = await own.put_many(CLIP, [Clip(title="b"), Clip(title="c")])

        async def work(tx: Transaction) -> Any:
            made = await tx.put(CLIP, Clip(title="d"))
            return made, await tx.put(REPLY, Reply(clip=made.record.id))

        made, reply = await own.transact(work)
        assert reply.record.clip == made.record.id != reply.record.id
        entries = [entry async for entry in own.scan(CLIP)]
        assert [entry.record.title for entry in entries] == [*"abcd"], "in the order of creation"
        assert [entry.key for entry in (first, *many, made)] == [entry.key for entry in entries]
        assert (await own.get(CLIP, id=first.record.id)) == first.record
        return [entry.record.id for entry in entries]

    ids = asyncio.run(main())
    assert all(map(Ulid.matches, ids)) and ids == asyncio.run(main()), "by the store's own source"


def test_an_id_that_is_given_stays_and_an_id_without_a_default_is_needed() -> None:
    async def main() -> None:
        own, id = store(), UlidSource(ManualClock()).new()
        clip = Clip(id=id, title="x")
        assert (await own.put(CLIP, clip)).record == clip
        assert (await own.put(CLIP, clip)).record.id == id
        with pytest.raises(KeyFieldError):
            await own.put(CLIP, Clip(id="x", title=""))
        with pytest.raises(KeyFieldError):
            await own.put(GIVEN, Given(id=""))
        with pytest.raises(KeyFieldError):
            await own.put(REPLY, Reply(clip=""))

    asyncio.run(main())


@pytest.fixture
def served(tmp_path: Path) -> Any:
    with serving(memory(tmp_path), tmp_path, CLIPS) as each:
        yield each


@pytest.mark.parametrize("value", [{"title": "a"}, {"title": "a", "id": ""}])
def test_http_fills_an_id_that_is_left_out(served: Served, value: dict[str, Any]) -> None:
    """A POST without an id was 422: "Object missing required field `id`"."""
    box = served.client()
    made = box.post("/records/clip", json=value)
    assert made.status_code == 201 and Ulid.matches(made.json()["value"]["id"])
    assert made.headers["location"] == f"clip/{made.json()['fields']['id']}"
    operation = {"op": "put", "record": "clip", "value": value}
    answer = box.post("/batch", json={"operations": [operation, operation]}).json()
    ids = {item["value"]["id"] for item in [made.json(), *answer["items"]]}
    assert len(ids) == 3 and all(map(Ulid.matches, ids))
    assert {each["value"]["id"] for each in box.get("/records/clip").json()["items"]} == ids
    again = box.put(f"/records/clip/{made.json()['fields']['id']}", json={**value, "title": "b"})
    assert again.status_code == 200 and again.json()["value"]["id"] == made.json()["value"]["id"]
    assert box.post("/records/given", json={"title": "a"}).status_code == 422


def test_openapi_has_a_generated_id_as_optional(served: Served) -> None:
    schemas = served.http().get("/openapi.json").json()["components"]["schemas"]
    assert schemas["NewClip"]["required"] == ["title"]
    assert "id" in schemas["NewGiven"]["required"]


def test_nats_fills_an_id_that_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("memory", tmp_path, CLIPS) as call:
            for operation in ("create", "put", "create"):
                made = await call(operation, {"record": "clip", "value": {"title": "a"}})
                assert made["success"] and Ulid.matches(made["value"]["id"]), made
            listed = await call("list", {"record": "clip"})
            assert len(listed["items"]) == 3
            async with RemoteStore(CLIPS, nats_server().url, space="ann") as remote:
                await check_remote(remote)

    asyncio.run(scenario())


def test_a_remote_store_fills_an_id_that_is_left_out(served: Served) -> None:
    async def main() -> None:
        async with RemoteStore(CLIPS, served.url, served.token("bob")) as remote:
            await check_remote(remote)

    asyncio.run(main())


async def check_remote(remote: RemoteStore) -> None:
    first = await remote.put(CLIP, Clip(title="x"))
    many = await remote.put_many(CLIP, [Clip(title="y"), Clip(title="z")])

    async def work(tx: Any) -> Any:
        made = await tx.put(CLIP, Clip(title="w"))
        await tx.put(REPLY, Reply(clip=made.record.id))
        return made

    made = await remote.transact(work)
    ids = [entry.record.id for entry in (first, *many, made)]
    assert len(set(ids)) == 4 and all(map(Ulid.matches, ids))
    for id, title in zip(ids, "xyzw", strict=True):
        found = await remote.get(CLIP, id=id)
        assert found is not None and found.title == title
    assert [each.record.clip async for each in remote.scan(REPLY)] == [made.record.id]
