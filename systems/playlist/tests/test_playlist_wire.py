"""Every endpoint, status and command of the service's API on a process of it: over a socket, and as
requests over NATS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from keyhouse.nats.server import NatsServer
from keyhouse_playlist.schema import IP_BLOCK, ROLE, RoleOf
from systems.playlist.tests.support.processes import EventReader, Shared, processes, run
from systems.playlist.tests.support.service import item
from tests.serve.support.serve_process import Serving
from tests.support.nats_servers import own_server
from tests.support.polling import until

ITEMS = [
    item("a1", "Alien S01E01", "Horror", "SciFi", seconds=100),
    item("a2", "Alien S01E02", "Horror", seconds=200),
    item("b1", "Blade Runner", "SciFi", seconds=300),
    item("c1", "100% Café_noir", seconds=None),
]
One = tuple[list[Serving], NatsServer]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[One]:
    folder = tmp_path_factory.mktemp("playlist")
    with (
        own_server(folder / "nats") as server,
        processes(folder, server.url, ITEMS, count=1) as served,
    ):
        yield served, server


def failure(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "details"}, body
    assert body["error"]["message"], body
    return response.status_code, body["error"]["code"]


async def saved(member: httpx.AsyncClient, name: str, *ids: str) -> str:
    items = [{"video_id": id} for id in ids]
    answer = await member.post("/playlists", json={"name": name, "items": items})
    assert answer.status_code == 201, answer.text
    assert set(answer.json()) == {"playlist_id", "name"}
    return str(answer.json()["playlist_id"])


def test_sign_in(one: One) -> None:
    async def work(view: Shared) -> None:
        client = view.client(0)
        sent = await client.post("/auth/otp/request", json={"username": "Nina"})
        assert sent.json() == {"status": "sent", "expires_in_seconds": 300}
        code = await view.code(0, "Nora")
        assert len(code) == 8 and code.isalnum() and code.upper() == code
        answer = await client.post("/auth/otp/verify", json={"username": "Nora", "otp": code})
        assert answer.json() == {"status": "ok", "role": "viewer"}
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("kryten_playlist_session=")
        for part in ("HttpOnly", "SameSite=Lax", "Max-Age=43200"):
            assert part.lower() in cookie.lower()
        session = (await client.get("/auth/session")).json()
        assert set(session) == {"username", "role", "expires_at"}
        assert session["username"] == "Nora" and session["expires_at"].endswith("Z")
        used = await client.post("/auth/otp/verify", json={"username": "Nora", "otp": code})
        assert used.json() == {
            "status": "unrequested",
            "can_block_ip": True,
            "default_block_hours": 72,
        }
        assert (await client.post("/auth/logout")).json() == {"status": "ok"}
        assert failure(await client.get("/auth/session")) == (401, "unauthorized")

    run(one, work)


def test_codes_are_limited_and_tell_when_to_come_back(one: One) -> None:
    async def work(view: Shared) -> None:
        client = view.client(0)
        for _ in range(5):
            sent = await client.post("/auth/otp/request", json={"username": "Rita"})
            assert sent.status_code == 200
        refused = await client.post("/auth/otp/request", json={"username": "RITA "})
        assert failure(refused) == (429, "rate_limited")
        assert 0 < refused.json()["error"]["details"]["retry_after_seconds"] <= 900
        assert int(refused.headers["retry-after"]) > 0

    run(one, work)


def test_roles_are_those_of_the_store_at_each_request(one: One) -> None:
    async def work(view: Shared) -> None:
        eva, root = await view.member(0, "eVA"), await view.member(0, "root")
        assert (await root.get("/auth/session")).json()["role"] == "admin"  # of the setting

        async def role() -> str:
            return str((await eva.get("/auth/session")).json()["role"])

        assert await role() == "viewer"
        acl = view.stores.acl
        await acl.put(ROLE, RoleOf(role="admin", updated_at="2020-01-01T00:00:00Z"), username="Eva")
        assert await role() == "admin"
        updated_at = view.stores.now_text()  # the store sets the time of the update, in seconds
        await until(lambda: view.stores.now_text() > updated_at)
        await acl.put(ROLE, RoleOf(role="blessed"), username="EVA")
        assert await role() == "blessed"  # the newest of the spellings

    run(one, work)


def test_addresses(one: One) -> None:
    async def work(view: Shared) -> None:
        ada, vic = await view.member(0, "Ada"), await view.member(0, "Vic")
        block = {"action": "block", "ip": "::ffff:198.51.100.7", "hours": 2}
        assert failure(await vic.post("/auth/ipblock", json=block)) == (403, "forbidden")
        done = (await ada.post("/auth/ipblock", json=block)).json()
        assert set(done) == {"status", "blocked_until"} and done["status"] == "blocked"
        for wrong in ({"hours": 0}, {"hours": 721}, {"ip": "nowhere"}, {"action": "x"}):
            status, code = failure(await ada.post("/auth/ipblock", json={**block, **wrong}))
            assert status in (400, 422) and code == "validation_error", wrong
        client, never = view.client(0), {"username": "Nobody", "otp": "AAAAAAAA"}
        asked = await client.post("/auth/otp/verify", json=never)
        assert asked.json()["status"] == "unrequested"
        own = (await client.post("/auth/ipblock", json={"action": "block", "hours": 1})).json()
        assert own["status"] == "blocked"
        for path, body in (("request", {"username": "Vic"}), ("verify", never)):
            blocked = await client.post(f"/auth/otp/{path}", json=body)
            assert failure(blocked) == (403, "ip_blocked")
        await view.stores.auth.delete(IP_BLOCK, ip="127.0.0.1")
        again = await client.post("/auth/ipblock", json={"action": "block"})
        assert failure(again) == (409, "no_block_intent")

    run(one, work)


def test_catalog(one: One) -> None:
    async def work(view: Shared) -> None:
        assert failure(await view.client(0).get("/catalog/search")) == (401, "unauthorized")
        vic = await view.member(0, "Vic")

        async def search(**query: Any) -> Any:
            return (await vic.get("/catalog/search", params=query)).json()

        found = await search(q="alien", facets="true")
        assert set(found) == {"snapshot_id", "total", "items", "facets"}
        assert set(found["items"][0]) == {
            "video_id",
            "title",
            "categories",
            "manifest_url",
            "duration_seconds",
            "thumbnail_url",
        }
        assert found["facets"] == {"category": {"Horror": 2, "SciFi": 1}}
        assert (await search(category=["Horror", "SciFi"]))["total"] == 1
        for query, total in {"CAFE": 1, "runn": 1, "100%": 1, "%": 0, '"': 0, "": 4}.items():
            assert (await search(q=query))["total"] == total, query
        assert len((await search(limit=1, offset=1))["items"]) == 1
        for wrong in ("limit=0", "limit=201", "limit=x", "offset=-1"):
            assert failure(await vic.get(f"/catalog/search?{wrong}")) == (400, "validation_error")
        listed = (await vic.get("/catalog/categories")).json()
        assert listed == {"categories": ["Horror", "SciFi"]}
        for path in ("/catalog/items/a1", "/catalog/a1"):
            assert (await vic.get(path)).json()["title"] == "Alien S01E01"
        assert failure(await vic.get("/catalog/items/none")) == (404, "not_found")

    run(one, work)


def test_playlists(one: One) -> None:
    async def work(view: Shared) -> None:
        bob, vic, ada = [await view.member(0, name) for name in ("Bob", "Vic", "Ada")]
        made = await saved(bob, "Wire Ünïon", "a1", "unknown")
        listed = (await vic.get("/playlists", params={"search": "UNION"})).json()
        assert listed["total"] == 1
        assert set(listed["playlists"][0]) == {
            "playlist_id",
            "name",
            "created_by",
            "item_count",
            "total_duration_seconds",
            "created_at",
            "updated_at",
        }
        assert (await vic.get("/playlists", params={"mine": "true"})).json()["total"] == 0
        read = await vic.get(f"/playlists/{made}")
        assert read.json()["items"][0]["title"] == "Alien S01E01"
        etag = read.headers["etag"]
        path = f"/playlists/{made}"
        assert failure(await vic.put(path, json={"name": "X"})) == (403, "forbidden")
        stale = await bob.put(path, json={"name": "X"}, headers={"If-Match": '"1"'})
        assert failure(stale) == (412, "conflict")
        new = await bob.put(path, json={"name": "Wire two"}, headers={"If-Match": etag})
        assert new.status_code == 200 and new.json()["name"] == "Wire two"
        fork = (await ada.post(f"{path}/fork")).json()
        assert fork["name"] == "Wire two (copy)"
        copied = (await ada.get(f"/playlists/{fork['playlist_id']}")).json()
        assert copied["forked_from"] == made and copied["created_by"] == "Ada"
        others = f"/playlists/{fork['playlist_id']}"
        assert failure(await bob.delete(others)) == (403, "forbidden")
        assert (await ada.delete(path)).json() == {"status": "ok"}
        assert failure(await bob.get(path)) == (404, "not_found")
        assert failure(await bob.get("/playlists/index")) == (404, "not_found")

    run(one, work)


def test_marathons(one: One) -> None:
    async def work(view: Shared) -> None:
        bob = await view.member(0, "Bob")
        first, second = await saved(bob, "M1", "a1", "a2"), await saved(bob, "M2", "b1")
        body: dict[str, Any] = {
            "sources": [{"playlist_id": first}, {"playlist_id": second}],
            "method": "interleave",
            "interleave_pattern": "b1a",
        }
        for path in ("/marathons/preview", "/marathon/generate"):
            mixed = (await bob.post(path, json=body)).json()
            assert [each["video_id"] for each in mixed["items"]] == ["b1", "a1", "a2"]
            assert set(mixed["items"][0]) == {"video_id", "title"} and mixed["warnings"] == []
        shuffled = {**body, "method": "shuffle", "shuffle_seed": 7}
        one_way, again = [(await bob.post("/marathons/preview", json=shuffled)) for _ in "ab"]
        assert one_way.json() == again.json()
        made = await bob.post("/marathons", json={**body, "name": "Mixed"})
        assert made.status_code == 201 and made.json()["name"] == "Mixed"
        items = {"name": "Mixed 2", "items": [{"video_id": "a1"}]}
        assert (await bob.post("/marathon/save", json=items)).status_code == 201
        for pattern in ("", "Z", "A0", "A?"):
            wrong = await bob.post(
                "/marathons/preview", json={**body, "interleave_pattern": pattern}
            )
            assert failure(wrong) == (400, "invalid_pattern"), pattern
        many = {**body, "sources": [{"playlist_id": first}] * 27}
        assert failure(await bob.post("/marathons/preview", json=many)) == (400, "invalid_pattern")

    run(one, work)


def test_the_channel(one: One) -> None:
    async def work(view: Shared) -> None:
        bob = await view.member(0, "Bob")
        made = await saved(bob, "Channel", "a1", "b1", "gone")
        async with EventReader(bob) as events:
            applied = await bob.post("/queue/apply", json={"playlist_id": made, "mode": "append"})
            done = applied.json()
            assert (done["status"], done["enqueued_count"]) == ("ok", 2)
            assert done["failed"] == [{"video_id": "gone", "reason": "not_in_catalog"}]
            await view.robot.play()
            liked = (await bob.post("/likes/current")).json()
            assert liked == {"status": "ok", "video_id": "a1", "like_count": 1}
            again = (await bob.post("/stats/like")).json()
            assert again == {"status": "duplicate", "video_id": "a1", "like_count": 1}
            await events.until(lambda seen: {name for name, _ in seen} >= {"like", "apply"})
            await events.until(lambda _: (events.data("nowplaying") or [None])[-1] is not None)
        queue = (await bob.get("/queue")).json()
        assert set(queue) == {"items", "current", "total_seconds"}
        assert [each["video_id"] for each in queue["items"]] == ["a1", "b1"]
        assert queue["items"][0]["starts_at"].endswith("Z")
        playing = (await bob.get("/nowplaying")).json()
        assert set(playing) == {
            "uid",
            "video_id",
            "title",
            "duration_seconds",
            "current_time",
            "paused",
            "queued_by",
        }
        assert (await bob.get("/stats/current")).json()["like_count"] == 1
        top = (await bob.get("/stats/top-liked", params={"window_days": 1, "limit": 5})).json()
        assert top["items"][0] | {"thumbnail_url": None} == {
            "video_id": "a1",
            "title": "Alien S01E01",
            "count": 1,
            "thumbnail_url": None,
        }
        for wrong in ("window_days=0", "window_days=367", "limit=0"):
            for path in ("top-played", "top-liked"):
                answer = await bob.get(f"/stats/{path}?{wrong}")
                assert failure(answer) == (400, "validation_error")
        replace = {"playlist_id": made, "mode": "hard_replace"}
        assert failure(await bob.post("/queue/apply", json=replace)) == (403, "forbidden")
        unknown = {"playlist_id": "none", "mode": "append"}
        assert failure(await bob.post("/queue/apply", json=unknown)) == (404, "not_found")
        assert failure(await bob.delete("/queue/apply/none")) == (404, "not_found")

    run(one, work)


def test_errors_of_the_http_layer_have_the_form_of_the_others(one: One) -> None:
    async def work(view: Shared) -> None:
        bob = await view.member(0, "Bob")
        assert failure(await bob.get("/nothing/here"))[0] == 404
        assert failure(await bob.patch("/playlists"))[0] == 405
        bad = await bob.post(
            "/playlists", content=b"{", headers={"Content-Type": "application/json"}
        )
        assert failure(bad) == (400, "validation_error")
        text = await bob.post("/playlists", content=b"{}", headers={"Content-Type": "text/plain"})
        assert failure(text)[0] == 415
        assert failure(await bob.post("/playlists", json={"name": 5}))[0] == 422
        assert failure(await bob.post("/playlists", json={"name": " "}))[0] == 422

    run(one, work)


def test_commands_over_nats(one: One, tmp_path: Path) -> None:
    async def work(view: Shared) -> None:
        client = await nats.connect(one[1].url)

        async def ask(command: str, body: object) -> Any:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            reply = await client.request(f"kryten.playlist.cmd.{command}", data, timeout=30)
            return json.loads(reply.data)

        by_ada = {"requested_by": "ADA", "correlation_id": {"any": "json"}}
        added = await ask("blessed_add", {**by_ada, "username": "Eve"})
        assert added == {
            "status": "ok",
            "correlation_id": {"any": "json"},
            "blessed": ["Bob", "Eve"],
        }
        listed = await ask("blessed_list", {"requested_by": "eve"})
        assert listed == {"status": "ok", "correlation_id": None, "blessed": ["Bob", "Eve"]}
        removed = await ask("blessed_remove", {**by_ada, "username": "EVE"})
        assert removed["blessed"] == ["Bob"]
        gone = await ask("blessed_remove", {**by_ada, "username": "EVE"})
        assert gone["error"]["code"] == "not_found"
        for command in ("blessed_add", "blessed_remove", "blessed_list", "catalog_refresh"):
            refused = await ask(command, {"requested_by": "Vic", "username": "Vic"})
            assert (refused["status"], refused["error"]["code"]) == ("error", "forbidden")
            for junk in (b"\xff\xfe", b"[]", b"", b"{", b'{"requested_by": 1}', b"null"):
                assert (await ask(command, junk))["status"] == "error", (command, junk)
        bob = await view.member(0, "Bob")
        made = await saved(bob, "By command", "a1")
        order = {"requested_by": "Bob", "playlist_id": made}
        refused = await ask("queue_apply", {**order, "mode": "hard_replace"})
        assert refused["error"]["code"] == "forbidden"
        applied = await ask("queue_apply", {**order, "mode": "append"})
        assert (applied["status"], applied["enqueued_count"], applied["failed"]) == ("ok", 1, [])
        missing = await ask("catalog_refresh", {**by_ada, "file": str(tmp_path / "none.json")})
        assert missing["error"]["code"] == "catalog_source"
        nothing = await ask("catalog_refresh", by_ada)
        assert "mediacms_url" in nothing["error"]["message"]
        await client.close()

    run(one, work)
