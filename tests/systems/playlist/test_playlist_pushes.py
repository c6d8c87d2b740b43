"""Pushes and plays over several processes: one push at a time, cancelled from anywhere; plays whose
event was lost are counted once."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec import structs

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import NotFoundError
from keyhouse.service.push_pacer import PUSHES_PER_TURN
from keyhouse.systems.playlist.channel_events import ChannelEvents
from keyhouse.systems.playlist.channel_pushes import ChannelPushes
from keyhouse.systems.playlist.demo_robot import DemoRobot
from keyhouse.systems.playlist.errors import ApplyRunningError
from keyhouse.systems.playlist.play_counter import PlayCounter
from keyhouse.systems.playlist.schema import CHANNEL_PUSH, GLOBAL_COUNTERS, ITEM_COUNTERS
from keyhouse.systems.playlist.statistics import ChannelStatistics
from keyhouse.systems.playlist.stores import PlaylistStores
from tests.systems.playlist.support.channel import MANIFESTS, channel, run, saved
from tests.systems.playlist.support.service import PlaylistService, fill, item

START = datetime(2026, 1, 1, tzinfo=UTC)


class Process:
    """The pushes and counts of one process, on an engine that several share."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.stores = PlaylistStores(engine, "default")
        self.statistics = ChannelStatistics(self.stores, None)  # type: ignore[arg-type]
        self.pushes = ChannelPushes(self.stores, self.statistics, channel="lounge", pace_seconds=8)

    async def plays(self, video_id: str) -> int:
        counters = await self.stores.analytics.get(ITEM_COUNTERS, video_id=video_id)
        return 0 if counters is None else counters.play_count


def test_one_push_runs_in_a_channel_and_any_process_cancels_it() -> None:
    async def main() -> None:
        engine = MemoryEngine(clock=ManualClock())
        one, other = Process(engine), Process(engine)
        push = await one.pushes.start("a", "p", "append", 3)
        with pytest.raises(ApplyRunningError) as refused:
            await other.pushes.start("b", "p", "append", 3)
        assert refused.value.fields["apply_id"] == "a"
        await one.pushes.advance(push, done=1, enqueued=1, added=[("v", 60)])
        seen = await other.pushes.running()
        assert seen is not None and (seen.done, seen.total) == (1, 3)
        with pytest.raises(NotFoundError):
            await other.pushes.cancel("b")
        assert await one.pushes.may_continue(push)
        await other.pushes.cancel("a")
        assert not await one.pushes.may_continue(push)
        await one.pushes.end(push, is_applied=True)
        assert await other.pushes.running() is None
        await other.pushes.start("b", "p", "append", 3)

    asyncio.run(main())


def test_a_push_whose_process_died_ends_by_itself_and_keeps_its_counts() -> None:
    async def main() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock=clock)
        one, other = Process(engine), Process(engine)
        push = await one.pushes.start("a", "p", "append", 3)
        clock.advance(seconds=30)
        await one.pushes.advance(push, done=1, enqueued=1, added=[("v", 60)])
        clock.advance(seconds=30)
        assert await other.pushes.running() is not None  # renewed
        clock.advance(seconds=10)
        assert await other.pushes.running() is None
        await other.pushes.start("b", "p", "append", 3)
        assert not await one.pushes.may_continue(push)  # it was only slow: it stops
        total = await other.stores.analytics.get(GLOBAL_COUNTERS)
        assert total is not None and total.items_queued == 1

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
            async with asyncio.timeout(10):
                while await _plays(service, "v3") == 0:
                    await asyncio.sleep(0.05)
            renamed = structs.replace(item("renamed", "T"), manifest_url=MANIFESTS[3])
            fill(tmp_path, [renamed], snapshot="s2")
            owners = [getattr(task, "__self__", None) for task in service.spec.tasks]
            [counter] = [owner for owner in owners if isinstance(owner, PlayCounter)]
            counter._seen = None  # as in a process that has not seen the item
            await counter.reconcile()
            assert await counter._channel.video_id(MANIFESTS[3]) == "renamed"
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
            async with asyncio.timeout(10):
                while await _plays(service, "v3") == 0:
                    await asyncio.sleep(0.05)
            await robot.announce(START)  # an event of the past: the same start
            await robot.play()  # its event and the changed row
            async with asyncio.timeout(30):
                while await _plays(service, "v3") == 1:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            assert await _plays(service, "v3") == 2

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
        async with asyncio.timeout(10):
            while not robot.queue:
                await asyncio.sleep(0.01)
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
        sending = asyncio.create_task(events._send("like", {"id": 1}))
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
        original = events._send

        async def recorded(name: str, data: Any) -> None:
            await original(name, data)
            if name == "apply":
                sent.append((data["apply_id"], data["status"]))

        events._send = recorded  # type: ignore[method-assign]
        store = service.stores.analytics
        push = await events._pushes.start("dead", "p", "append", 3)
        client = await nats.connect(url)
        event = {"apply_id": "dead", "status": "running", "done": 1, "total": 3}
        subject = "kryten.playlist.event.default"
        for junk in (b"{", b"[]", b"null", b"\n\nevent: x"):
            await client.publish(f"{subject}.apply", junk)
        await client.publish(f"{subject}.other", b"{}")
        await client.publish(f"{subject}.apply", json.dumps(event).encode())
        async with asyncio.timeout(10):
            while not sent:
                await asyncio.sleep(0.02)
        await events.end_lost_push()
        await events.end_lost_push()
        assert sent == [("dead", "running")]  # its row is there
        await store.delete(CHANNEL_PUSH, channel="lounge")  # as if it had expired
        await events.end_lost_push()
        await events.end_lost_push()
        await events.end_lost_push()
        assert sent == [("dead", "running"), ("dead", "failed")]
        assert push.apply_id == "dead"
        await client.close()

    run(tmp_path, work)
