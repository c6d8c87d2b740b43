"""Pushes and plays over several processes: one push at a time, cancelled from anywhere; plays whose
event was lost are counted once."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec import structs

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import NotFoundError
from keyhouse.service.background_records import OperationRun
from keyhouse.service.push_pacer import PUSHES_PER_TURN
from keyhouse_playlist.accounts.roles import WRITE
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.channel.events import ChannelEvents
from keyhouse_playlist.channel.messages import ApplyEvent
from keyhouse_playlist.channel.plays import PlayCounter
from keyhouse_playlist.channel.pushes import ChannelPushes, PushProgress, PushRecords
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.demo.robot import DemoRobot
from keyhouse_playlist.errors import ApplyRunningError
from keyhouse_playlist.playlists.document import StoredPlaylist
from keyhouse_playlist.schema import (
    CHANNEL_PUSH,
    GLOBAL_COUNTERS,
    ITEM_COUNTERS,
    PUSH_RUN,
    ChannelPush,
)
from keyhouse_playlist.stores import PlaylistStores
from systems.playlist.tests.support.channel import MANIFESTS, channel, run, saved
from systems.playlist.tests.support.service import PlaylistService, fill, item
from tests.support.polling import until

BOB = ChannelMember(username="Bob", scopes=frozenset({WRITE}))
START = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    """A playlist of three known items, and a robot that takes them when the test lets it."""

    def __init__(self) -> None:
        self.known = {id: item(id, id) for id in ("a", "b", "c")}
        self.taken: list[str] = []
        self.may_take = asyncio.Semaphore(0)

    async def read(self, id: str) -> StoredPlaylist:
        return StoredPlaylist(id, {"items": [{"video_id": id} for id in self.known]}, 1, False)

    async def get_many(self, ids: list[str]) -> dict[str, CatalogItem]:
        return {id: self.known[id] for id in ids}

    async def exists(self) -> bool:
        return True

    async def add(self, manifest_url: str, position: str) -> str | None:
        await self.may_take.acquire()
        self.taken.append(manifest_url)
        return None


class Process:
    """The pushes and counts of one process, on an engine that several share."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.stores = PlaylistStores(engine, "default")
        self.statistics = ChannelStatistics(self.stores, None)  # type: ignore[arg-type]
        self.records = PushRecords(self.stores, "lounge")
        self.scene = Scene()
        parts: Any = self.scene
        self.events: list[ApplyEvent] = []

        async def publish(name: str, event: ApplyEvent) -> None:
            self.events.append(event)

        self.pushes = ChannelPushes(
            self.stores,
            self.records,
            parts,
            parts,
            parts,
            parts,
            self.statistics,
            publish=publish,
            interval_seconds=0,
        )

    async def plays(self, video_id: str) -> int:
        counters = await self.stores.analytics.get(ITEM_COUNTERS, video_id=video_id)
        return 0 if counters is None else counters.play_count

    async def queued(self) -> int:
        total = await self.stores.analytics.get(GLOBAL_COUNTERS)
        return 0 if total is None else total.items_queued


async def running(process: Process, done: int) -> PushProgress:
    """Wait until a process sees a push of which so many items were sent."""

    async def seen() -> PushProgress | None:
        push = await process.records.running()
        return push if push is not None and push.total and push.done == done else None

    return await until(seen)


def test_one_push_runs_in_a_channel_and_any_process_cancels_it() -> None:
    async def main() -> None:
        engine = MemoryEngine(clock=ManualClock())
        one, other = Process(engine), Process(engine)
        call = await one.pushes.start("p", "append", BOB)
        push = await running(other, 0)
        with pytest.raises(ApplyRunningError) as refused:
            await other.pushes.start("p", "append", BOB)
        assert refused.value.fields["apply_id"] == push.apply_id
        one.scene.may_take.release()
        seen = await running(other, 1)
        assert (seen.total, seen.enqueued_count, seen.is_cancelled) == (3, 1, False)
        with pytest.raises(NotFoundError):
            await other.pushes.cancel(one.stores.analytics.ids.new())
        await other.pushes.cancel(push.apply_id)
        assert (await running(one, 1)).is_cancelled
        one.scene.may_take.release()  # the item that was being added stays, and is counted
        reply = await call
        assert (reply.status, reply.apply_id, reply.enqueued_count) == (
            "cancelled",
            push.apply_id,
            2,
        )
        assert await other.queued() == len(one.scene.taken) == 2
        assert [(each.status, each.done) for each in one.events] == [
            ("running", 0),
            ("running", 1),
            ("running", 2),
            ("cancelled", 2),
        ]
        assert await other.records.running() is None
        following = await other.pushes.start("p", "append", BOB)
        for _ in range(3):
            other.scene.may_take.release()
        assert (await following).status == "ok"

    asyncio.run(main())


def test_a_push_whose_process_died_makes_room_for_the_next_one() -> None:
    """If the process was only slow, it stops; the item that the channel took is counted."""

    async def main() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock=clock)
        one, other = Process(engine), Process(engine)
        call = await one.pushes.start("p", "append", BOB)
        one.scene.may_take.release()
        first = await running(other, 1)
        clock.advance(seconds=31)
        assert await other.records.running() is None
        await other.pushes.start("p", "append", BOB)
        assert (await running(one, 0)).apply_id != first.apply_id
        one.scene.may_take.release()
        assert (await call).status == "cancelled"
        assert await other.queued() == len(one.scene.taken) == 2
        assert await one.records.running() is not None

    asyncio.run(main())


def test_a_push_whose_process_died_is_ended_by_another_process() -> None:
    async def main() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock=clock)
        one, other = Process(engine), Process(engine)
        await one.pushes.start("p", "append", BOB)
        await running(other, 0)
        clock.advance(seconds=31)
        runner = asyncio.create_task(other.pushes.operations.run())

        async def is_ended() -> bool:
            return await other.stores.analytics.get(CHANNEL_PUSH, channel="lounge") is None

        await until(is_ended)
        assert (await other.stores.analytics.page(PUSH_RUN)).entries == []
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)

    asyncio.run(main())


def test_a_play_is_counted_once_by_its_event_and_from_the_bucket_in_any_order() -> None:
    async def main() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock=clock)
        one, other = Process(engine), Process(engine)
        second = clock.now() // 1_000
        await one.statistics.count_play("lounge", 1, "v", 60, second)
        assert not await other.statistics.count_missed_play("lounge", 1, "v", 60)
        assert await one.plays("v") == 1
        missed = await asyncio.gather(
            *(each.statistics.count_missed_play("lounge", 2, "w", 60) for each in (one, other) * 8)
        )
        assert sum(missed) == 1
        await one.statistics.count_play("lounge", 2, "w", 60, second)  # its event comes late
        await one.statistics.count_play("lounge", 2, "w", 60, second)
        assert await one.plays("w") == 1
        clock.advance(seconds=60)
        await one.statistics.count_play("lounge", 2, "w", 60, second + 60)  # it plays again
        assert await one.plays("w") == 2

    asyncio.run(main())


def test_an_item_that_started_again_after_it_was_counted_from_the_bucket_counts_twice() -> None:
    async def main() -> None:
        clock = ManualClock()
        one = Process(MemoryEngine(clock=clock))
        assert await one.statistics.count_missed_play("lounge", 1, "v", 60)
        clock.advance(seconds=60)
        await one.statistics.count_play("lounge", 1, "v", 60, clock.now() // 1_000)
        assert await one.plays("v") == 2

    asyncio.run(main())


def test_a_play_counts_once_though_its_event_is_a_second_later_than_the_bucket() -> None:
    """The bucket was read just before a second ended, and the robot's event had the next one: the
    play counted twice."""

    async def main() -> None:
        clock = ManualClock()
        one = Process(MemoryEngine(clock=clock))
        assert await one.statistics.count_missed_play("lounge", 1, "v", 60)
        await one.statistics.count_play("lounge", 1, "v", 60, clock.now() // 1_000 + 1)
        assert await one.plays("v") == 1

    asyncio.run(main())


def test_a_play_counts_once_though_a_refresh_changes_the_id_of_its_item(tmp_path: Path) -> None:
    async def before(robot: DemoRobot) -> None:
        robot.queue = [
            {"uid": 7, "media": {"id": MANIFESTS[3], "title": "T", "seconds": 100, "type": "cm"}}
        ]
        await robot.play()

    async def main() -> None:
        async with channel(tmp_path, before=before) as (service, _robot, _):
            await until(lambda: _plays(service, "v3"))
            renamed = structs.replace(item("renamed", "T"), manifest_url=MANIFESTS[3])
            fill(tmp_path, [renamed], snapshot="s2")
            owners = [getattr(task, "__self__", None) for task in service.spec.tasks]
            [counter] = [owner for owner in owners if isinstance(owner, PlayCounter)]
            counter.seen = None  # as in a process that has not seen the item
            await counter.reconcile()
            assert await counter.channel.video_id(MANIFESTS[3]) == "renamed"
            assert await _plays(service, "renamed") == 0 and await _plays(service, "v3") == 1

    asyncio.run(main())


def test_what_plays_while_no_process_runs_is_counted_at_the_start(tmp_path: Path) -> None:
    async def before(robot: DemoRobot) -> None:
        robot.queue = [
            {"uid": 7, "media": {"id": MANIFESTS[3], "title": "T", "seconds": 100, "type": "cm"}}
        ]
        await robot.play()

    async def main() -> None:
        async with channel(tmp_path, before=before) as (service, robot, _):
            await until(lambda: _plays(service, "v3"))
            await robot.announce(START)  # an event of the past: the same start
            await robot.play()  # its event and the changed row
            await robot.announce(START + timedelta(hours=1))  # events are counted in order

            async def is_counted() -> bool:
                return await _plays(service, "v3") >= 3

            await until(is_counted)
            assert await _plays(service, "v3") == 3

    asyncio.run(main())


async def _plays(service: PlaylistService, video_id: str) -> int:
    counters = await service.stores.analytics.get(ITEM_COUNTERS, video_id=video_id)
    return 0 if counters is None else counters.play_count


def test_a_push_is_cancelled_between_two_items_and_shown_as_cancelled(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        bob, vic = await service.member("Bob"), await service.member("Vic")
        ids = ("v0", "v1", "v2", "v3", "v4") * 8  # 12 seconds: longer than the requests below
        made = await saved(bob, *ids)
        apply = {"playlist_id": made, "mode": "append"}
        running = asyncio.ensure_future(bob.post("/queue/apply", apply))
        await until(lambda: robot.queue)
        busy = await bob("POST", "/queue/apply", apply)
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "apply_running")
        id = busy.json()["error"]["details"]["apply_id"]
        assert (await vic("DELETE", f"/queue/apply/{id}")).status_code == 403
        assert (await bob("DELETE", "/queue/apply/other")).status_code == 404
        assert (await bob("DELETE", f"/queue/apply/{id}")).json() == {"status": "ok"}
        done = await running
        assert done["status"] == "cancelled" and done["apply_id"] == id
        assert done["enqueued_count"] == len(robot.queue) < len(ids)
        assert (await bob("DELETE", f"/queue/apply/{id}")).status_code == 404

    run(tmp_path, work, queue_interval_seconds=0.3)


def events_of(service: PlaylistService) -> ChannelEvents:
    owners = [getattr(task, "__self__", None) for task in service.spec.tasks]
    return next(owner for owner in owners if isinstance(owner, ChannelEvents))


def test_an_event_for_many_clients_leaves_turns_to_requests(tmp_path: Path) -> None:
    """It woke all of them in one turn of the event loop."""

    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        events = events_of(service)
        clients = [await events.stream().subscribe(None) for _ in range(60)]
        for client in clients:
            await client.next()  # the state
        sending = asyncio.create_task(events.send("like", {"id": 1}))
        turns = 0
        while not sending.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= len(clients) / PUSHES_PER_TURN
        received = await asyncio.gather(*(client.next() for client in clients))
        like = b'event: like\ndata: {"id":1}\n\n'
        # the watch of the robot's bucket may have started late, and sent the state again
        assert {(each or b"").count(like) for each in received} == {1}
        for client in clients:
            client.close()

    run(tmp_path, work)


def test_a_push_whose_process_died_is_shown_as_failed(tmp_path: Path) -> None:
    async def work(service: PlaylistService, robot: DemoRobot, url: str) -> None:
        events = events_of(service)
        sent: list[tuple[str, str]] = []
        original = events.send

        async def recorded(name: str, data: Any) -> None:
            await original(name, data)
            if name == "apply":
                sent.append((data["apply_id"], data["status"]))

        events.send = recorded  # type: ignore[method-assign]
        store = service.stores.analytics
        id, now = store.ids.new(), store.engine.clock.now()
        given = {"playlist_id": "p", "mode": "append"}
        push = OperationRun(id=id, type="push", created_by="", queued_at=now, input=given)
        await store.put(PUSH_RUN, structs.replace(push, owner="dead", lease_until=now + 60_000))
        await store.put(CHANNEL_PUSH, ChannelPush(apply_id=id), channel="lounge")
        client = await nats.connect(url)
        event = {"apply_id": id, "status": "running", "done": 1, "total": 3}
        subject = "kryten.playlist.event.default"
        for junk in (b"{", b"[]", b"null", b"\n\nevent: x"):
            await client.publish(f"{subject}.apply", junk)
        await client.publish(f"{subject}.other", b"{}")
        await client.publish(f"{subject}.apply", json.dumps(event).encode())
        await until(lambda: sent)
        await events.end_lost_push()
        await events.end_lost_push()
        assert sent == [(id, "running")]  # its row is there
        await store.delete(CHANNEL_PUSH, channel="lounge")  # as if another process had ended it
        await events.end_lost_push()
        await events.end_lost_push()
        await events.end_lost_push()
        assert sent == [(id, "running"), (id, "failed")]
        await client.close()

    run(tmp_path, work)
