"""Sealed members and members that this code does not know, of a served schema."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from keyhouse import KeyRing, Record, RemoteStore, Schema, Space, Store, open_engine
from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.errors import UsageError
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from tests.serve.support.serve_process import serving as serving_process
from tests.service.schema_service.support import club
from tests.service.schema_service.support.club import BY_EMAIL, CLUB, MEMBER, Member
from tests.service.schema_service.support.served import serving
from tests.support.program import run
from tests.support.threaded_service import SECRET

ADA = {"name": "Ada", "email": "ada@example.org"}


class OldThing(msgspec.Struct):
    id: str
    size: int = 0


class NewThing(msgspec.Struct):
    id: str
    size: int = 0
    colour: str = ""


OLD = Record(OldThing, "thing:{id}", name="thing", unknown="keep")
NEW = Record(NewThing, "thing:{id}", name="thing")


def text_of(ring: KeyRing, folder: Path) -> str:
    ring.save(folder / "ring.json")
    return (folder / "ring.json").read_text()


def test_a_sealed_member_is_served_in_clear_and_stored_encrypted(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/club.db"

    async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
        return await open_engine(url, clock=clock)

    ring = KeyRing.new()
    ring.save(tmp_path / "ring.json")
    with serving(opened, tmp_path, CLUB, key_ring=str(tmp_path / "ring.json")) as served:
        box = served.client()
        assert box.put("/records/member/1", json=ADA).json()["value"] == {"id": "1", **ADA}
        assert box.get("/records/member/1").json()["value"]["email"] == ADA["email"]
        found = box.get("/lookup/member?by=by_email&email=ada@example.org")
        assert found.json()["fields"] == {"id": "1"}
        taken = box.post("/records/member", json={"id": "2", **ADA})
        assert taken.status_code == 409 and "ada@" not in taken.text
        patched = box.patch("/records/member/1", json={"name": "Ada L."})
        assert patched.json()["value"]["email"] == ADA["email"]

        async def remote() -> None:
            async with RemoteStore(CLUB, served.url, served.token()) as store:
                await store.put(MEMBER, Member(id="3", name="Bo", email="bo@example.org"))
                assert (await store.get(MEMBER, id="3")) == Member(
                    id="3", name="Bo", email="bo@example.org"
                )
                entry = await store.lookup(MEMBER, BY_EMAIL, email="bo@example.org")
                assert entry is not None and entry.fields == {"id": "3"}

        asyncio.run(remote())

    async def rows() -> str:
        async with open_engine(url) as engine:
            page = await Store(CLUB, engine, "ann").row_page(limit=100)
            return str(page.rows)

    stored = asyncio.run(rows())
    assert "Ada L." in stored and "example.org" not in stored


def build(folder: Path, **settings: Any) -> None:
    async def main() -> None:
        async with open_engine("memory:") as engine:
            context = ServiceContext(
                engine=engine,
                data=folder,
                metrics=CollectorRegistry(),
                settings={"jwt_secret": SECRET, **settings},
            )
            schema_service(CLUB)(context)

    asyncio.run(main())


def test_a_schema_with_sealed_members_is_not_served_without_their_key_ring(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape("club.key_ring")):
        build(tmp_path)
    build(tmp_path, key_ring=text_of(KeyRing.new(), tmp_path))
    (tmp_path / "ring.json").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        build(tmp_path, key_ring=str(tmp_path / "ring.json"))
    with pytest.raises(UsageError, match="cannot be read"):
        build(tmp_path, key_ring=str(tmp_path / "absent.json"))
    for wrong in ("{}", "{not json"):
        with pytest.raises(UsageError, match="not a key ring"):
            build(tmp_path, key_ring=wrong)


def test_the_key_ring_is_a_setting_of_the_environment(tmp_path: Path) -> None:
    shutil.copy(club.__file__, tmp_path / "club.py")
    refused = run(
        "serve", "club:CLUB", "--nats", "off", "--http", "127.0.0.1:0", cwd=tmp_path, code=1
    )
    assert "club.key_ring" in refused.stderr and "Traceback" not in refused.stderr
    ring = {"KEYHOUSE_CLUB_KEY_RING": text_of(KeyRing.new(), tmp_path)}
    with serving_process(tmp_path, "club:CLUB", "--nats", "off", **ring) as process:
        assert process.http


def test_a_put_and_a_patch_keep_members_that_the_schema_does_not_know(tmp_path: Path) -> None:
    new, old = (Schema("things", each, space=Space("a person")) for each in (NEW, OLD))
    url = f"sqlite:{tmp_path}/things.db"

    async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
        return await open_engine(url, clock=clock)

    async def write() -> None:
        async with open_engine(url) as engine:
            for id in "abc":
                await Store(new, engine, "ann").put(NEW, NewThing(id, 1, "red"))

    async def colours() -> list[tuple[int, str]]:
        async with open_engine(url) as engine:
            found = Store(new, engine, "ann").scan(NEW)
            return [(entry.record.size, entry.record.colour) async for entry in found]

    asyncio.run(write())
    with serving(opened, tmp_path, old) as served:
        box = served.client()
        assert box.put("/records/thing/a", json={"size": 2}).status_code == 200
        assert box.patch("/records/thing/b", json={"size": 3}).status_code == 200
        operation = {"op": "put", "record": "thing", "fields": {"id": "c"}, "value": {"size": 4}}
        assert box.post("/batch", json={"operations": [operation]}).status_code == 200
    assert asyncio.run(colours()) == [(2, "red"), (3, "red"), (4, "red")]
