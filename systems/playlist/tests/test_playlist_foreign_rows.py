"""Rows that other programs left: malformed ones of every record in all six buckets, and indexes of
every form."""

import asyncio
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DataError
from keyhouse.schema import BoundRecord, Record
from keyhouse.store import verify
from keyhouse_playlist.schema import BLESSED, PLAYLIST_INDEX, SCHEMAS
from systems.playlist.tests.support.service import (
    PlaylistService,
    Visitor,
    document,
    fill,
    item,
    playlist_service,
    run,
    write,
)
from tests.sizes import size

INDEX = "ns/default/playlists/index"
FIELDS: dict[str, Any] = {
    "namespace": "default",
    "snapshot_id": "s1",
    "username": "bob",
    "requester": "0" * 64,
    "playlist_id": "p1",
    "kind": "name",
    "of": "bob",
    "session_id": "none",
    "ip": "192.0.2.1",
    "video_id": "v1",
    "user_id": "bob",
    "day": date(2026, 1, 1),
    "channel": "lounge",
    "uid": "1",
    "id": "01KDVDNA00AMKY99CPBM3M1RVA",
}
MALFORMED = [
    b"",
    b"\xff\xfe",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    b"[null]",
    b"[[]]",
    b"{}",
    b'{"a":',
    b"[" * 100_000,
    b'{"x":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"schema_version":1}',
    b'{"schema_version":2}',
    b'{"schema_version":"2"}',
    b'{"schema_version":1e400}',
    b'{"name":5,"items":{},"playlist_id":[],"username":null,"role":"king"}',
    b'{"playlist_id":"p1","name":"\\ud800","items":[]}',
    b'{"failures":"x","times":5,"expires_at":"never","blocked_until":[],"play_count":"many"}',
]
RECORDS = [(schema, record) for schema in SCHEMAS for record in schema.records]


def malformed_of(record: Record[Any]) -> list[bytes]:
    """Return the values for a record: in a usual run a sixth of them, others for the next
    record."""
    at = [each for _, each in RECORDS].index(record)
    return MALFORMED[at % 6 :: 6] if size(1, 0, 0) else MALFORMED


async def requests(
    bob: Visitor, ada: Visitor, stranger: Visitor, ours: str, number: int
) -> list[Any]:
    """Send a request to every route, and return the responses."""
    sources = [{"playlist_id": ours}, {"playlist_id": "p1"}]
    marathon = {"sources": sources, "method": "concatenate"}
    sent = [
        await stranger("POST", "/auth/otp/request", {"username": "Bob"}),
        await stranger("POST", "/auth/otp/verify", {"username": "Bob", "otp": "AAAAAAAA"}),
        await stranger("POST", "/auth/ipblock", {"action": "block"}),
        await ada("POST", "/auth/ipblock", {"action": "block", "ip": "198.51.100.9"}),
        await stranger("GET", "/auth/session"),
        await stranger("POST", "/auth/logout"),
        await bob("GET", "/auth/session"),
        await bob("GET", "/catalog/search"),
        await bob("GET", "/playlists"),
        await bob("GET", "/playlists/p1"),
        await ada("PUT", "/playlists/p1", {"items": []}),
        await ada("PUT", "/playlists/p1", {"name": f"Renamed {number}"}),
        await bob("POST", "/playlists/p1/fork"),
        await bob("POST", "/playlists", {"name": f"New {number}", "items": [{"video_id": "v1"}]}),
        await bob("PUT", f"/playlists/{ours}", {"name": "Ours"}),
        await bob("POST", "/marathons/preview", marathon),
        await bob("POST", "/marathons", {"name": f"Both {number}", **marathon}),
        await bob("GET", "/queue"),
        await bob("GET", "/nowplaying"),
        await bob("POST", "/queue/apply", {"playlist_id": ours, "mode": "append"}),
        await bob("POST", "/queue/apply", {"playlist_id": "p1", "mode": "append"}),
        await bob("DELETE", "/queue/apply/none"),
        await bob("POST", "/likes/current"),
        await bob("GET", "/stats/current"),
        await bob("GET", "/stats/top-played"),
        await bob("GET", "/stats/top-liked"),
        await ada("DELETE", "/playlists/p1"),
    ]
    for schema in SCHEMAS:
        sent.append(await ada("GET", "/rows", params={"bucket": schema.name}))
    for path in ("", "playlists", "playlists/p1", "marathon", "channel", "statistics"):
        url = f"http://localhost/playlist/{path}"
        sent.append(await bob.http.get(url, headers={"Accept": "text/html"}))
    return sent


@pytest.mark.parametrize(
    ("schema", "record"), RECORDS, ids=[f"{s.name}-{r.name}" for s, r in RECORDS]
)
@pytest.mark.soak
def test_a_malformed_row_of_any_record_is_not_a_fault_of_the_service_and_stays(
    tmp_path: Path, schema: Any, record: Record[Any]
) -> None:
    """An index of objects, or without a list, made every create a 500; so did other rows."""

    async def work() -> None:
        clock = ManualClock()
        robot = MemoryEngine(clock=clock)
        media = {"id": "https://media.example/v1.json", "title": "V1"}
        current = json.dumps({"uid": 1, "media": media}).encode()
        rows = (Put("items", b"[" + current + b"]"), Put("current", current))
        await robot.commit("kryten_lounge_playlist", Batch(puts=rows))
        async with playlist_service(tmp_path, robot_engine=robot, clock=clock) as service:
            await service.stores.acl.put(BLESSED, ["Bob"])
            bob, ada = await service.member("Bob"), await service.member("Ada", "192.0.2.2")
            items = [{"video_id": "v1"}]
            made = await bob.post("/playlists", {"name": "Ours", "items": items}, 201)
            ours = f"ns/default/playlists/{made['playlist_id']}"
            store = next(each for each in service.stores.all if each.space == schema.name)
            bound = store.binding.record(record)
            key = bound.template.build({name: FIELDS[name] for name in bound.template.fields})
            for number, value in enumerate(malformed_of(record)):
                clock.advance(seconds=1_000)  # further codes may be requested
                await write(store, key, value)
                await service.prepare()
                stranger = service.visitor("192.0.2.1")
                for response in await requests(bob, ada, stranger, made["playlist_id"], number):
                    if response.status_code >= 500:
                        context = (response.request.url, value[:50], response.text[:300])
                        assert "robot" in response.text, context
                if not _decodes(bound, value, key):
                    row = await store.row(key)
                    assert row is not None and row.value == value, (key, value[:50])
                own = await service.stores.playlists.row(ours)
                assert own is not None
                assert json.loads(own.value)["items"][0]["title"] == "V1"
        await robot.close()

    fill(tmp_path, [item("v1", "V1")])
    asyncio.run(work())


def _decodes(bound: BoundRecord[Any], value: bytes, key: str) -> bool:
    try:
        bound.decode(value, key)
    except DataError:
        return False
    return True


@pytest.mark.parametrize("starts_after", [False, True])
@pytest.mark.parametrize(
    "index",
    [
        None,
        b'["p1"]',
        b'["p1","gone"]',
        b"[]",
        b"{}",
        b"null",
        b"7",
        b"not JSON",
        b"[" * 100_000,
        b'{"schema_version":1}',
        b'{"schema_version":1,"kept":"theirs"}',
        b'{"playlists":["p1"],"schema_version":1,"kept":"theirs"}',
        b'{"playlists":null,"schema_version":1,"kept":"theirs"}',
        b'{"playlists":[{"playlist_id":"p1"}],"schema_version":1,"kept":"theirs"}',
        b'[{"playlist_id":"p1","name":"One"}]',
        b'[["p1"]]',
    ],
    ids=str,
)
def test_an_index_of_any_form_is_rebuilt_whole_with_documents_of_every_version(
    tmp_path: Path, index: bytes | None, starts_after: bool
) -> None:
    """The other program no longer listed its own documents; of a list, only those were kept; other
    forms made every create a 500."""

    async def work(service: PlaylistService) -> None:
        store = service.stores.playlists
        await write(store, "ns/default/playlists/p1", document("p1", "One"))
        await write(store, "ns/default/playlists/p2", document("p2", "Two"))
        newer = document("p3", "Three", schema_version=2, visibility="private", owner="Theo")
        await write(store, "ns/default/playlists/p3", newer)
        await write(store, "ns/default/playlists/p4", b"no document")
        if index is not None:
            await write(store, INDEX, index)
        if starts_after:
            await service.prepare()
        bob = await service.member("Bob")
        made = (await bob.post("/playlists", {"name": "Ours"}, 201))["playlist_id"]
        row = await store.row(INDEX)
        assert row is not None
        stored = json.loads(row.value)
        names = {id: each["name"] for id, each in stored["playlists"].items()}
        assert names == {"p1": "One", "p2": "Two", "p3": "Three", made: "Ours"}
        assert stored["playlists"]["p3"]["visibility"] == "private"
        assert stored["playlists"]["p3"]["item_count"] == 1
        assert stored["schema_version"] == 1
        if b"kept" in (index or b""):
            assert stored["kept"] == "theirs"
        found = {finding.key async for finding in verify(store, repair=True)}
        assert found <= {f"ns/default/playlists/{id}" for id in ("p3", "p4")} | {
            "ns/default/names/one",
            "ns/default/names/two",
        }
        assert set(await store.members(PLAYLIST_INDEX)) == {"p1", "p2", "p3", made}

    run(tmp_path, work)


def test_a_row_in_the_way_is_named(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        key = "ns/default/otp/lock/bob"
        for value, code in ((b"7", "unreadable_row"), (b'{"schema_version":2}', "newer_version")):
            await write(service.stores.auth, key, value)
            response = await service.visitor()("POST", "/auth/otp/request", {"username": "Bob"})
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (409, code)
            assert error["details"]["key"] == key

    run(tmp_path, work)
