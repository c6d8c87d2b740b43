"""`kryten-py`, the client of the programs around this service, on the same NATS: it reads and
writes the same rows, and the robot gets the same commands from both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keyhouse.nats.bus import Bus
from keyhouse.nats.connection import connect
from keyhouse_playlist.channel.robot import Robot
from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import OTP_LOCK, ROLE, SESSION
from systems.playlist.tests.support.channel import MANIFESTS, run, saved
from systems.playlist.tests.support.service import PlaylistService
from tests.support.polling import until

kryten = pytest.importorskip("kryten")

AT = "2025-12-18T12:34:56+00:00"
PLAYLISTS = "kryten_playlist_playlists"
NS = "ns/default/"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    channels = [{"domain": "cytu.be", "channel": "lounge"}]
    client = kryten.KrytenClient({"nats": {"servers": [url]}, "channels": channels})
    await client.connect()
    try:
        yield client
    finally:
        await client.disconnect()


async def read(client: Any, bucket: str, key: str) -> Any:
    return await client.kv_get(f"kryten_playlist_{bucket}", NS + key, parse_json=True)


async def write(client: Any, bucket: str, key: str, value: Any) -> None:
    await client.kv_put(f"kryten_playlist_{bucket}", NS + key, value, as_json=True)


def document(id: str, name: str, **members: object) -> dict[str, object]:
    return {
        "playlist_id": id,
        "name": name,
        "items": [{"video_id": "v1", "title": "Theirs", "year": 1979}],
        "created_by": "Bob",
        "created_at": AT,
        "updated_at": AT,
        "schema_version": 1,
        **members,
    }


def test_kryten_reads_what_the_service_writes(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        made = await saved(bob, "v0", "v1")
        await bob.post("/queue/apply", {"playlist_id": made, "mode": "append"})
        await robot.play()
        await bob.post("/likes/current")
        async with connected(url) as client:
            await played(client, 1)
            stored = await read(client, "playlists", f"playlists/{made}")
            assert stored["name"] == "v0 v1" and stored["created_at"].endswith("Z")
            assert [each["video_id"] for each in stored["items"]] == ["v0", "v1"]
            index = await read(client, "playlists", "playlists/index")
            assert index["playlists"][made]["created_by"] == "Bob"
            assert await read(client, "acl", "blessed") == ["Bob"]
            assert (await read(client, "analytics", "counters/global"))["items_queued"] == 2
            assert (await read(client, "analytics", "items/v0"))["play_count"] == 1
            assert (await read(client, "analytics", f"playlists/{made}"))["apply_count"] == 1
            assert (await read(client, "likes", "items/v0/likes"))["like_count"] == 1
            assert set(await read(client, "likes", "dedupe/v0/bob")) == {
                "liked_at",
                "expires_at",
                "schema_version",
            }
            sessions = [key for key in await client.kv_keys("kryten_playlist_auth") if "ses" in key]
            session = await client.kv_get("kryten_playlist_auth", sessions[0], parse_json=True)
            assert (session["username"], session["role"]) == ("Bob", "blessed")
            everything = await client.kv_get_all(PLAYLISTS, parse_json=True)
            assert all(key.startswith(NS) for key in everything)

    run(tmp_path, work)


def test_the_service_reads_what_kryten_writes(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        vic = await service.member("Vic")
        async with connected(url) as client:
            await write(client, "acl", "blessed", ["Bob", "VIC"])
            assert (await vic.get("/auth/session"))["role"] == "blessed"
            await write(client, "acl", "roles/vic", {"role": "admin", "updated_at": AT})
            await write(client, "acl", "blessed", [])
            assert (await vic.get("/auth/session"))["role"] == "admin"
            assert (await service.stores.acl.get(ROLE, username="vic")) is not None
            await write(client, "playlists", "playlists/k1", document("k1", "Theirs", mood="dark"))
            listed = await vic.get("/playlists")
            assert [(each["name"], each["item_count"]) for each in listed["playlists"]] == [
                ("Theirs", 1)
            ]
            changed = await vic("PUT", "/playlists/k1", {"name": "Ours"})
            assert changed.status_code == 200
            kept = await read(client, "playlists", "playlists/k1")
            assert (kept["mood"], kept["name"], kept["created_at"]) == ("dark", "Ours", AT)
            await client.kv_delete(PLAYLISTS, NS + "playlists/k1")
            assert (await vic("GET", "/playlists/k1")).status_code == 404
            count = {"video_id": "v0", "like_count": 41, "updated_at": AT, "schema_version": 1}
            await write(client, "likes", "items/v0/likes", count)
            await robot.play_media(MANIFESTS[0], "Title 0", 100)
            assert (await vic.post("/likes/current"))["like_count"] == 42
            await played(client, 1)
            counters = {"video_id": "v0", "play_count": 12, "queue_count": 20, "notes": "theirs"}
            await write(client, "analytics", "items/v0", {**counters, "schema_version": 1})
            await robot.play_media(MANIFESTS[0], "Title 0", 100)
            await played(client, 13)
            assert (await read(client, "analytics", "items/v0"))["notes"] == "theirs"
            block = {"blocked_until": "2999-01-01T00:00:00+00:00", "reason": "otp_abuse"}
            more = {"created_at": AT, "schema_version": 1}
            await write(client, "auth", "ipblock/192.0.2.1", {**block, **more})
            refused = await service.visitor()("POST", "/auth/otp/request", {"username": "X"})
            assert refused.json()["error"]["code"] == "ip_blocked"
            past = {**block, **more, "blocked_until": "2020-01-01T00:00:00Z"}
            await write(client, "auth", "ipblock/192.0.2.1", past)
            assert (
                await service.visitor()("POST", "/auth/otp/request", {"username": "X"})
            ).is_success

    run(tmp_path, work)


async def played(client: Any, count: int) -> None:
    async def is_counted() -> bool:
        item = await read(client, "analytics", "items/v0") or {}
        return bool(item.get("play_count") == count)

    await until(is_counted)


def test_documents_of_newer_and_older_versions_are_shown(tmp_path: Path) -> None:
    """Version 2 as `kryten-playlist` writes it: other members, and an index of version 2."""

    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        newer = document(
            "k2",
            "Newer",
            schema_version=2,
            owner="Bob",
            visibility="private",
            item_count=1,
            forked_from=None,
        )
        older = {k: v for k, v in document("k0", "Older").items() if k != "schema_version"}
        async with connected(url) as client:
            await write(client, "playlists", "playlists/k2", newer)
            await write(client, "playlists", "playlists/k0", older)
            await client.kv_put(PLAYLISTS, NS + "playlists/junk", "not JSON")
            listed = await bob.get("/playlists")
            assert {each["name"]: each.get("read_only") for each in listed["playlists"]} == {
                "Newer": True,
                "Older": None,
            }
            shown = await bob.get("/playlists/k2")
            assert shown["read_only"] and shown["visibility"] == "private"
            for method, body in (("PUT", {"name": "X"}), ("DELETE", None)):
                answer = await bob(method, "/playlists/k2", body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (
                    409,
                    "newer_version",
                )
            assert await read(client, "playlists", "playlists/k2") == newer
            fork = await bob.post("/playlists/k2/fork", {"name": "Mine now"}, 201)
            assert (await read(client, "playlists", f"playlists/{fork['playlist_id']}"))[
                "schema_version"
            ] == 1
            done = await bob.post("/queue/apply", {"playlist_id": "k2", "mode": "append"})
            assert done["enqueued_count"] == 1
            assert (await bob("PUT", "/playlists/k0", {"name": "Older still"})).status_code == 200
            index = {"playlists": {"k2": {"name": "Newer"}}, "schema_version": 2}
            await write(client, "playlists", "playlists/index", index)
            refused = await bob("POST", "/playlists", {"name": "One more"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "newer_version")
            assert await read(client, "playlists", "playlists/index") == index
            assert (await bob.get("/playlists"))["total"] == 3

    run(tmp_path, work)


def test_rows_of_kryten_that_have_expired_are_absent(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        session = {"username": "Bob", "role": "admin", "created_at": AT, "ip": "192.0.2.9"}
        async with connected(url) as client:
            await service.member("Bob")  # the bucket exists
            ended = {**session, "expires_at": "2020-01-01T00:00:00Z", "schema_version": 1}
            await write(client, "auth", "session/old", ended)
            assert await service.stores.auth.get(SESSION, session_id="old") is None
            await write(
                client, "auth", "session/new", {**ended, "expires_at": "2999-01-01T00:00:00Z"}
            )
            assert await service.stores.auth.get(SESSION, session_id="new") is not None
            lock = {"failures": 3, "since": AT, "locked_until": AT, "schema_version": 1}
            await write(client, "auth", "otp/lock/eve", lock)
            assert await service.stores.auth.get(OTP_LOCK, username="Eve") is not None
            sent = await service.visitor().post("/auth/otp/request", {"username": "Eve"})
            assert sent["status"] == "sent"  # a lock that has ended locks nobody

    run(tmp_path, work)


async def received(robot: DemoRobot, count: int) -> None:
    await until(lambda: len(robot.commands) >= count)


def test_the_robot_gets_the_commands_of_kryten(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        async with connected(url) as client, connect(url) as ours:
            await client.add_media("lounge", "cm", MANIFESTS[0], position="next")
            await client.delete_media("lounge", 5)
            await client.clear_playlist("lounge")
            await client.send_pm("lounge", "Bob", "hello")
            await received(robot, 4)
            own = Robot(
                Bus(ours), service.clock, channel="lounge", domain="cytu.be", timeout_seconds=30
            )
            assert await own.add(MANIFESTS[0], "next") is None
            await own.remove(5)
            await own.clear()
            await own.send_private_message("Bob", "hello")
            await received(robot, 8)
        theirs, same = robot.commands[:4], robot.commands[4:8]
        for one, other in zip(theirs, same, strict=True):
            assert (one["command"], one["args"]) == (other["command"], other["args"])
            assert one["meta"].keys() <= other["meta"].keys()
            assert one["meta"]["channel"] == other["meta"]["channel"]

    run(tmp_path, work)


def test_the_queue_is_the_one_that_kryten_sees(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        async with connected(url) as client:
            await client.add_media("lounge", "cm", MANIFESTS[2])
            await client.add_media("lounge", "yt", "dQw4w9WgXcQ")
            await robot.play()
            queue = await bob.get("/queue")
            items = await client.get_state_playlist_items("lounge")
            assert [each["uid"] for each in queue["items"]] == [each["uid"] for each in items]
            assert [each["video_id"] for each in queue["items"]] == ["v2", "dQw4w9WgXcQ"]
            current = await client.get_state_current_media("lounge")
            assert queue["current"]["uid"] == current["uid"]

    run(tmp_path, work)
