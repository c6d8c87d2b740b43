"""Two processes of the service on one NATS server: what they share is exact."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from keyhouse.nats.server import NatsServer
from keyhouse_playlist.schema import (
    CHANNEL_PUSH,
    GLOBAL_COUNTERS,
    ITEM_COUNTERS,
    ITEM_LIKES,
    PLAYLIST_COUNTERS,
)
from systems.playlist.tests.support.mediacms import mediacms
from systems.playlist.tests.support.processes import EventReader, Shared, processes, run
from systems.playlist.tests.support.service import item
from tests.serve.support.serve_process import Serving
from tests.sizes import size
from tests.support.nats_servers import own_server
from tests.support.polling import until
from tests.support.seeds import new_seed

ITEMS = [item(f"v{number}", f"Title {number}", seconds=100) for number in range(6)]
CLIENTS = size(16, 64, 64)
GUESSES = size(100, 1_000, 1_000)
Both = tuple[list[Serving], NatsServer]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("playlist")
    with own_server(folder / "nats") as server, processes(folder, server.url, ITEMS) as served:
        yield served, server


def test_a_client_gets_the_item_that_started_before_the_bucket_was_watched(tmp_path: Path) -> None:
    """The robot starts after the service, which looks for its bucket every two seconds."""

    async def work(view: Shared) -> None:
        async with EventReader(await view.member(0, "Bob")) as events:
            await view.robot.play_media(ITEMS[0].manifest_url, "Title 0", 100, announced=False)
            await events.until(lambda _: (events.data("nowplaying") or [None])[-1] is not None)

    with (
        own_server(tmp_path / "nats") as server,
        processes(tmp_path, server.url, ITEMS, count=1) as served,
    ):
        run((served, server), work)


@pytest.mark.soak
def test_many_parallel_guesses_over_two_processes_evaluate_three(both: Both) -> None:
    async def work(view: Shared) -> None:
        code = await view.code(0, "Gil")
        clients = [view.client(0), view.client(1)]

        async def guess(number: int) -> dict[str, Any]:
            body = {"username": ("Gil", "gil", " GIL ")[number % 3], "otp": f"{number:08d}"}
            answer = await clients[number % 2].post("/auth/otp/verify", json=body)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        answers = await asyncio.gather(*(guess(number) for number in range(GUESSES)))
        invalid = [each["attempts_remaining"] for each in answers if each["status"] == "invalid"]
        assert sorted(invalid) == [1, 2]  # the third locked the name
        locked = [each for each in answers if each["status"] == "locked"]
        assert len(locked) == GUESSES - 2
        assert all(0 < each["retry_after_seconds"] <= 3_600 for each in locked)
        for client in clients:
            late = await client.post("/auth/otp/verify", json={"username": "Gil", "otp": code})
            assert late.json()["status"] == "locked"

    run(both, work)


def test_one_code_sent_many_times_to_both_processes_starts_one_session(both: Both) -> None:
    async def work(view: Shared) -> None:
        code = await view.code(1, "Una")
        clients = [view.client(0), view.client(1)]
        body = {"username": "Una", "otp": code}
        answers = await asyncio.gather(
            *(clients[at % 2].post("/auth/otp/verify", json=body) for at in range(50))
        )
        statuses = Counter(each.json()["status"] for each in answers)
        assert statuses["ok"] == 1 and "invalid" not in statuses, statuses

    run(both, work)


@pytest.mark.soak
def test_likes_are_exact_under_many_clients_of_two_processes(both: Both) -> None:
    async def work(view: Shared) -> None:
        await view.robot.play_media(ITEMS[1].manifest_url, "Title 1", 100)
        before = await view.stores.likes.get(ITEM_LIKES, video_id="v1")
        assert before is None
        members = [await view.member(at % 2, f"fan{at}") for at in range(CLIENTS)]
        calls = [member for member in members for _ in range(3)]
        random.Random(new_seed()).shuffle(calls)
        answers = await asyncio.gather(*(each.post("/likes/current") for each in calls))
        assert {each.status_code for each in answers} == {200}
        statuses = Counter(each.json()["status"] for each in answers)
        assert statuses == {"ok": CLIENTS, "duplicate": 2 * CLIENTS}
        likes = await view.stores.likes.get(ITEM_LIKES, video_id="v1")
        assert likes is not None and likes.like_count == CLIENTS
        top = (await members[0].get("/stats/top-liked")).json()["items"]
        assert {each["video_id"]: each["count"] for each in top}["v1"] == CLIENTS

    run(both, work)


def test_plays_are_counted_once_however_often_both_processes_hear_of_them(both: Both) -> None:
    async def work(view: Shared) -> None:
        await view.robot.play_media(ITEMS[2].manifest_url, "Title 2", 100, announced=False)
        start = datetime(2026, 1, 1, tzinfo=UTC)
        for _ in range(3):
            for hour in range(20):
                await view.robot.announce(start + timedelta(hours=hour))

        async def plays() -> int:
            counters = await view.stores.analytics.get(ITEM_COUNTERS, video_id="v2")
            return 0 if counters is None else counters.play_count

        async def counted() -> bool:
            return await plays() >= 20

        async with (
            EventReader(await view.member(0, "Bob")) as one,
            EventReader(await view.member(1, "Vic")) as other,
        ):
            await until(counted)
            # The next item, as both processes show it: they have handled all events before it.
            await view.robot.play_media(ITEMS[3].manifest_url, "Title 3", 100)
            for events in (one, other):
                await events.until(
                    lambda _, events=events: "Title 3" in str(events.data("nowplaying"))
                )
        # The item was current before its first event: it may have been counted from the bucket.
        assert await plays() in (20, 21)

    run(both, work)


def test_pushes_run_one_at_a_time_and_every_queued_item_is_counted(both: Both) -> None:
    async def work(view: Shared) -> None:
        bobs = [await view.member(at % 2, "Bob") for at in range(CLIENTS)]
        items = [{"video_id": each.video_id} for each in ITEMS[:3]]
        made = await bobs[0].post("/playlists", json={"name": "Many", "items": items})
        body = {"playlist_id": made.json()["playlist_id"], "mode": "append"}
        before = await view.stores.analytics.get(GLOBAL_COUNTERS)
        queued = 0 if before is None else before.items_queued
        answers = await asyncio.gather(*(bob.post("/queue/apply", json=body) for bob in bobs))
        statuses = Counter(each.status_code for each in answers)
        assert set(statuses) <= {200, 409} and statuses[200] >= 1, statuses
        sent = sum(each.json()["enqueued_count"] for each in answers if each.status_code == 200)
        assert sent == 3 * statuses[200]
        after = await view.stores.analytics.get(GLOBAL_COUNTERS)
        assert after is not None and after.items_queued - queued == sent
        applied = await view.stores.analytics.get(
            PLAYLIST_COUNTERS, playlist_id=body["playlist_id"]
        )
        assert applied is not None and applied.apply_count == statuses[200]
        assert len(view.robot.queue) == sent
        assert await view.stores.analytics.get(CHANNEL_PUSH, channel="lounge") is None

    run(both, work)


def test_the_progress_of_a_push_is_seen_and_cancelled_in_the_other_process(both: Both) -> None:
    async def work(view: Shared) -> None:
        bob, eve = await view.member(0, "Bob"), await view.member(1, "Bob")
        # 12 seconds: longer than a member needs to open the page and to cancel
        items = [{"video_id": each.video_id} for each in ITEMS] * 10
        made = (await bob.post("/playlists", json={"name": "Slow", "items": items})).json()
        view.robot.delay_seconds = 0.2
        body = {"playlist_id": made["playlist_id"], "mode": "append"}
        async with EventReader(eve) as there:
            running = asyncio.ensure_future(bob.post("/queue/apply", json=body))
            await there.until(lambda _: any(each["done"] >= 2 for each in there.data("apply")))
            [id] = {each["apply_id"] for each in there.data("apply")}
            late = await view.member(1, "Vic")
            async with EventReader(late) as opened_later:
                await opened_later.until(lambda _: opened_later.data("apply"))
                assert opened_later.data("apply")[0]["apply_id"] == id
            assert (await eve.delete(f"/queue/apply/{id}")).status_code == 200
            done = (await running).json()
            assert done["status"] == "cancelled" and 2 <= done["enqueued_count"] < len(items)
            await there.until(lambda _: there.data("apply")[-1]["status"] == "cancelled")
            steps = [each["done"] for each in there.data("apply")]
            assert steps == sorted(steps)

    run(both, work)


def test_a_playlist_of_one_process_is_seen_and_changed_in_the_other(both: Both) -> None:
    async def work(view: Shared) -> None:
        one, other = await view.member(0, "Bob"), await view.member(1, "Bob")
        made = (await one.post("/playlists", json={"name": "Seen"})).json()["playlist_id"]
        assert (await other.get(f"/playlists/{made}")).json()["name"] == "Seen"
        taken = await other.post("/playlists", json={"name": " SEEN "})
        assert (taken.status_code, taken.json()["error"]["code"]) == (409, "name_taken")
        assert (await other.put(f"/playlists/{made}", json={"name": "New"})).status_code == 200
        listed = (await one.get("/playlists", params={"search": "new"})).json()
        assert [each["playlist_id"] for each in listed["playlists"]] == [made]
        assert (await other.delete(f"/playlists/{made}")).status_code == 200
        assert (await one.get(f"/playlists/{made}")).status_code == 404

    run(both, work)


def test_nothing_in_the_buckets_or_logs_lets_a_reader_sign_in(both: Both) -> None:
    async def work(view: Shared) -> None:
        code = await view.code(0, "Sue")
        client = view.client(1)
        answer = await client.post("/auth/otp/verify", json={"username": "Sue", "otp": code})
        assert answer.json()["status"] == "ok"
        cookie = answer.cookies["kryten_playlist_session"]
        pending = await view.code(1, "Sue")
        secrets = [code, pending, cookie, "k" * 32]
        for store in view.stores.all:
            async for row in store.row_scan():
                for secret in secrets:
                    assert secret not in row.key and secret.encode() not in row.value, row.key
        keys = [row.key async for row in view.stores.auth.row_scan() if "/session/" in row.key]
        thief = view.client(0)
        for key in keys:  # what a reader of the bucket has
            thief.cookies.set("kryten_playlist_session", key.rpartition("/")[2])
            assert (await thief.get("/auth/session")).status_code == 401
            thief.cookies.clear()
        for served in both[0]:
            text = served.log_path.read_text()
            assert not [secret for secret in secrets if secret in text]

    run(both, work)


def test_processes_refresh_their_own_files_from_the_same_source(tmp_path: Path) -> None:
    """One process gets the command; the other sees `current` change, and reads MediaCMS itself."""
    with own_server(tmp_path / "nats") as server, mediacms(120) as cms:
        url = cms.url
        with processes(tmp_path, server.url, ITEMS, KEYHOUSE_PLAYLIST_MEDIACMS_URL=url) as served:

            async def work(view: Shared) -> None:
                client = await nats.connect(server.url)
                reply = await client.request(
                    "kryten.playlist.cmd.catalog_refresh", b'{"requested_by": "Ada"}', timeout=60
                )
                await client.close()
                done = json.loads(reply.data)
                assert (done["status"], done["item_count"]) == ("ok", 120)
                for number in range(2):
                    vic = await view.member(number, "Vic")

                    async def is_new(vic: httpx.AsyncClient = vic) -> bool:
                        found = (await vic.get("/catalog/search")).json()
                        is_new = bool(found["snapshot_id"] == done["snapshot_id"])
                        assert found["total"] == (120 if is_new else len(ITEMS))  # the old, whole
                        return is_new

                    await until(is_new)

            run((served, server), work)
