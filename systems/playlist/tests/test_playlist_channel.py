"""The channel: queue, pushes, likes, plays, events and commands, over a real NATS server with a
recorded robot, on the buckets that other programs share."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.schema import (
    GLOBAL_COUNTERS,
    ITEM_COUNTERS,
    ITEM_LIKES,
    PLAYLIST_COUNTERS,
)
from systems.playlist.tests.support.channel import MANIFESTS, queued, run, saved
from systems.playlist.tests.support.service import API, PlaylistService, playlist_service
from tests.support.polling import until


def test_a_playlist_is_pushed_in_every_mode(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob, ada = await service.member("Bob"), await service.member("Ada")
        first, second = await saved(bob, "v0", "v1"), await saved(bob, "v2", "v3")
        done = await bob.post("/queue/apply", {"playlist_id": first, "mode": "append"})
        assert (done["status"], done["enqueued_count"], done["failed"]) == ("ok", 2, [])
        assert queued(robot) == MANIFESTS[:2]
        await robot.play()
        await bob.post("/queue/apply", {"playlist_id": second, "mode": "insert_next"})
        assert queued(robot) == [MANIFESTS[0], MANIFESTS[2], MANIFESTS[3], MANIFESTS[1]]
        await bob.post("/queue/apply", {"playlist_id": second, "mode": "preserve_current"})
        assert queued(robot) == [MANIFESTS[0], MANIFESTS[2], MANIFESTS[3]]
        replace = {"playlist_id": first, "mode": "hard_replace"}
        assert (await bob("POST", "/queue/apply", replace)).status_code == 403
        await ada.post("/queue/apply", replace)
        assert queued(robot) == MANIFESTS[:2]
        total = await service.stores.analytics.get(GLOBAL_COUNTERS)
        assert total is not None
        assert (total.items_queued, total.duration_queued_seconds) == (8, 800)
        applied = await service.stores.analytics.get(PLAYLIST_COUNTERS, playlist_id=first)
        assert applied is not None and applied.apply_count == 2

    run(tmp_path, work)


def test_rejected_and_unknown_items_are_in_failed(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        robot.rejects = {MANIFESTS[0]: "outer", MANIFESTS[1]: "inner"}
        made = await saved(bob, "v0", "v1", "v2", "nobody")
        done = await bob.post("/queue/apply", {"playlist_id": made, "mode": "append"})
        assert done["enqueued_count"] == 1
        assert {each["video_id"]: each["reason"] for each in done["failed"]} == {
            "v0": "queue_fail",
            "v1": "queue_fail",
            "nobody": "not_in_catalog",
        }

    run(tmp_path, work)


def test_without_a_robot_the_queue_is_unavailable(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        made = await saved(bob, "v0")
        apply = {"playlist_id": made, "mode": "append"}
        for method, path, body in (
            ("POST", "/queue/apply", apply),
            ("GET", "/queue", None),
            ("POST", "/likes/current", None),
        ):
            response = await bob(method, path, body)
            assert response.status_code == 503, response.text
            assert response.json()["error"]["code"] == "robot_unavailable"
        assert await bob.get("/nowplaying") is None

    run(tmp_path, work, robot=False)


def test_a_robot_that_says_that_it_stops_is_unavailable_until_it_runs_again(tmp_path: Path) -> None:
    """The last item was still shown, and could be liked."""

    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        made = await saved(bob, "v0")
        await robot.enqueue(MANIFESTS[:2])

        async def until_status(status: int) -> None:
            async def is_answered() -> bool:
                return bool((await bob("GET", "/queue")).status_code == status)

            await until(is_answered)

        for starts in ("startup", "heartbeat", "a row"):
            await robot.play()
            await until_status(200)
            await robot.publish_lifecycle("shutdown")
            await until_status(503)
            assert await bob.get("/nowplaying") is None
            assert (await bob.get("/stats/current"))["playing"] is False
            for path, body in (
                ("/likes/current", None),
                ("/queue/apply", {"playlist_id": made, "mode": "append"}),
            ):
                response = await bob("POST", path, body)
                assert response.json()["error"]["code"] == "robot_unavailable"
            if starts == "a row":
                await robot.play(1)
            else:
                await robot.publish_lifecycle(starts)
            await until_status(200)
            assert (await bob.get("/nowplaying"))["title"].startswith("v")
        assert (await bob.post("/likes/current"))["status"] == "ok"

    run(tmp_path, work)


def test_the_queue_and_the_current_item_are_shown(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        assert await bob.get("/queue") == {"items": [], "current": None, "total_seconds": 0}
        like = await bob("POST", "/likes/current")
        assert (like.status_code, like.json()["error"]["code"]) == (409, "no_current_item")
        robot.titles = {MANIFESTS[0]: ("Title 0", 100), MANIFESTS[1]: ("Title 1", 100)}
        made = await saved(bob, "v0", "v1")
        await bob.post("/queue/apply", {"playlist_id": made, "mode": "append"})
        await robot.play()
        shown = await bob.get("/queue")
        assert shown["total_seconds"] == 200
        assert shown["current"]["video_id"] == "v0" and shown["current"]["uid"] == 1
        first, second = shown["items"]
        assert set(first) == {
            "uid",
            "video_id",
            "title",
            "duration_seconds",
            "queued_by",
            "starts_at",
        }
        start, following = (datetime.fromisoformat(each["starts_at"]) for each in (first, second))
        assert (following - start).total_seconds() == 100
        assert (await bob.get("/nowplaying"))["title"] == "Title 0"

    run(tmp_path, work)


def test_likes_and_plays_are_counted_once(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob, vic = await service.member("Bob"), await service.member("Vic")
        made = await saved(bob, "v0")
        await bob.post("/queue/apply", {"playlist_id": made, "mode": "append"})
        await robot.play()
        answers = await asyncio.gather(*(bob.post("/likes/current") for _ in range(10)))
        assert sorted(each["status"] for each in answers) == ["duplicate"] * 9 + ["ok"]
        assert await vic.post("/stats/like") == {
            "status": "ok",
            "video_id": "v0",
            "like_count": 2,
        }
        likes = await service.stores.likes.get(ITEM_LIKES, video_id="v0")
        assert likes is not None and likes.like_count == 2
        at = datetime(2026, 1, 1, tzinfo=UTC)
        for _ in range(5):
            await robot.announce(at)
        await robot.announce(datetime(2026, 1, 1, 1, tzinfo=UTC))

        async def plays() -> int:
            counters = await service.stores.analytics.get(ITEM_COUNTERS, video_id="v0")
            return 0 if counters is None or counters.play_count < 3 else counters.play_count

        # events are counted in order: the last one is counted
        assert await until(plays) == 3  # `play` announced one, too
        top = await bob.get("/stats/top-played")
        assert top["items"][0]["video_id"] == "v0" and top["items"][0]["count"] == 3
        liked = await bob.get("/stats/top-liked", window_days=1)
        assert liked["items"][0]["count"] == 2
        current = await bob.get("/stats/current")
        assert current["playing"] and current["like_count"] == 2
        for query in ("window_days=0", "window_days=367", "limit=0"):
            assert (await bob("GET", f"/stats/top-played?{query}")).status_code == 400

    run(tmp_path, work)


def test_events_show_the_queue_likes_and_a_push(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob = await service.member("Bob")
        made = await saved(bob, "v0", "v1")
        cookie = "; ".join(f"{name}={value}" for name, value in bob.http.cookies.items())
        received = bytearray()
        done = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            received.extend(message.get("body", b""))

        async def until_received(text: bytes) -> None:
            await until(lambda: text in received)

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{API}/events",
            "raw_path": f"{API}/events".encode(),
            "query_string": b"",
            "headers": [(b"cookie", cookie.encode())],
            "client": ("192.0.2.1", 1),
        }
        stream = asyncio.ensure_future(service.app(scope, receive, send))
        await until_received(b"event: nowplaying\ndata: null\n\n")
        await bob.post("/queue/apply", {"playlist_id": made, "mode": "append"})
        await robot.play()
        await until_received(b'"status":"done"')
        await bob.post("/likes/current")
        for name in (b"like", b"queue"):
            await until_received(b"event: %s\n" % name)
        done.set()
        await asyncio.wait_for(stream, 30)
        blocks = received.decode().split("\n\n")
        names = {block.split("\n")[0] for block in blocks if block.startswith("event")}
        assert names == {"event: nowplaying", "event: queue", "event: like", "event: apply"}
        pushes = [
            json.loads(block.split("data: ")[1])
            for block in blocks
            if block.startswith("event: apply")
        ]
        assert [(each["status"], each["done"]) for each in pushes] == [
            ("running", 0),
            ("running", 1),
            ("running", 2),
            ("done", 2),
        ]

    run(tmp_path, work)


def test_commands_over_nats_check_the_role_and_repeat_the_correlation_id(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        by_name = {each.name: each for each in service.spec.endpoints}
        assert {each.subject for each in by_name.values()} == {
            f"kryten.playlist.cmd.{name}"
            for name in (
                "catalog_refresh",
                "queue_apply",
                "blessed_add",
                "blessed_remove",
                "blessed_list",
            )
        }

        async def ask(name: str, body: object) -> Any:
            return await command(service, name, body)

        added = await ask(
            "blessed_add", {"requested_by": "ADA", "username": "Eve", "correlation_id": "c1"}
        )
        assert added == {"status": "ok", "correlation_id": "c1", "blessed": ["Bob", "Eve"]}
        refused = await ask("blessed_add", {"requested_by": "Bob", "username": "X"})
        assert refused["status"] == "error" and refused["error"]["code"] == "forbidden"
        assert (await ask("blessed_list", {"requested_by": "bob"}))["blessed"] == ["Bob", "Eve"]
        removed = await ask("blessed_remove", {"requested_by": "Ada", "username": "EVE"})
        assert removed["blessed"] == ["Bob"]
        for junk in (b"\xff", b"[]", b'{"requested_by": 1}', b"", b"{"):
            for name in by_name:
                assert (await ask(name, junk))["status"] == "error"
        bob = await service.member("Bob")
        made = await saved(bob, "v0")
        applied = await ask(
            "queue_apply", {"requested_by": "Bob", "playlist_id": made, "mode": "append"}
        )
        assert applied["status"] == "ok" and applied["enqueued_count"] == 1
        source = tmp_path / "new.json"
        source.write_text(
            json.dumps([{"video_id": "n", "title": "New", "manifest_url": "https://m/n"}])
        )
        fresh = await ask("catalog_refresh", {"requested_by": "Ada", "file": str(source)})
        assert fresh["item_count"] == 1
        found = await bob.get("/catalog/search")
        assert found["snapshot_id"] == fresh["snapshot_id"] and found["total"] == 1

    run(tmp_path, work)


def test_a_command_that_fails_on_our_side_is_logged_and_counted(tmp_path: Path) -> None:
    """Its sender got an error reply, and the operator saw nothing."""

    async def work() -> None:
        async with playlist_service(tmp_path) as service:
            ada = await service.member("Ada")
            order = {"requested_by": "Ada", "playlist_id": await saved(ada, "v0"), "mode": "append"}
            with capture_logs() as lines:
                failed = await command(service, "queue_apply", order)
                refused = await command(service, "queue_apply", {**order, "requested_by": "Vic"})
            assert failed["error"]["code"] == "robot_unavailable"
            assert refused["error"]["code"] == "forbidden"
            [line] = [line for line in lines if line["log_level"] == "error"]
            assert line["event"] == "playlist queue_apply failed"
            assert (line["user"], line["error"]) == ("ada", "robot_unavailable")
            assert service.spec.figures is not None
            counted = service.spec.figures.errors()
            assert (counted["robot_unavailable"], counted["forbidden"]) == (1, 1)

    asyncio.run(work())


async def command(service: PlaylistService, name: str, body: object) -> Any:
    """Return the reply to a command, as its sender gets it."""
    [endpoint] = [each for each in service.spec.endpoints if each.name == name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request: Any = type("R", (), {"data": data, "reply": "_INBOX.x"})()
    return json.loads(await endpoint.handler(request) or b"")
