"""Event streams over watches, on the real HTTP listener."""

import asyncio
from time import perf_counter
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from keyhouse import Record, Schema, Space, Store, Template, open_engine
from keyhouse.auth import Caller
from keyhouse.clock import SystemClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import BusyError, UsageError
from keyhouse.http import EventStream, Route
from keyhouse.http.event_stream import EventSource
from keyhouse.http.read_meter import read_meter
from keyhouse.service.event_hub import EventHub
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceSpec
from keyhouse.store import Event
from tests.http.support.event_client import SentEvent, watching
from tests.http.support.real_server import run, serving
from tests.http.support.shop import Tokens
from tests.support.engine_openers import OPENERS
from tests.support.polling import loop_turns, until


class Clip(msgspec.Struct):
    id: str
    title: str
    secret: str = ""


CLIP = Record(Clip, Template("clip:{id}"), name="clip", private=("secret",))
TAG = Record(Clip, Template("tag:{id}"), name="tag", unknown="keep")
OLD = Record(Clip, Template("old:{id}"), name="old", legacy_at="old_{id}")
BOARD = Schema("board", CLIP, TAG, OLD, space=Space("a tenant"))


class Since(msgspec.Struct):
    since: int | None = None
    id: str | None = None


class Board:
    def __init__(self, engine: Any, **hub: Any) -> None:
        self.store = Store(BOARD, engine, "ann")
        self.hub = EventHub(**hub)

    async def watch(self, query: Since) -> EventStream:
        """Stream the changes of the board."""
        fields: dict[str, Any] = {} if query.id is None else {"id": query.id}
        return self.hub.stream(self.store, CLIP, since=query.since, **fields)

    async def mine(self, caller: Caller) -> EventStream:
        """Stream the caller's changes."""
        return self.hub.stream(Store(BOARD, self.store.engine, caller.tenant), CLIP)

    async def all(self, query: Since) -> EventStream:
        """Stream the changes of clips and tags."""
        return self.hub.stream(self.store, CLIP, TAG, since=query.since, encode=shown)

    def spec(self) -> ServiceSpec:
        return ServiceSpec(
            name="board",
            auth=Tokens(),
            routes=[
                Route(method="GET", path="/watch", handler=self.watch),
                Route(method="GET", path="/all", handler=self.all),
                Route(method="GET", path="/mine", handler=self.mine, scope="read"),
            ],
        )

    async def put(self, id: str, title: str = "t") -> int:
        return (await self.store.put(CLIP, Clip(id, title, "hidden"))).revision


def shown(event: Event[Any]) -> tuple[str, Any]:
    return "changed", {"key": event.key, "stored": event.stored and event.stored.decode()}


def put(id: str, title: str, revision: int, *, is_last: bool = True) -> SentEvent:
    value = {"id": id, "title": title}
    data = {"key": f"clip:{id}", "revision": revision, "value": value}
    return SentEvent("put", data, str(revision) if is_last else None)


def test_a_change_is_an_event_with_its_revision_as_id() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        async with serving(board.spec()) as client, watching(client.port, "/board/watch") as stream:
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.headers["cache-control"] == "no-store"
            revision = await board.put("a", "one")
            assert await stream.next() == put("a", "one", revision), "without private members"
            await board.store.delete(CLIP, id="a")
            gone = await stream.next()
            assert gone is not None and gone.name == "gone" and "value" not in gone.data

    run(scenario)


@pytest.mark.parametrize("name", OPENERS)
def test_only_the_last_event_of_a_commit_has_an_id(name: str, tmp_path: Any) -> None:
    async def scenario() -> None:
        board = Board(await OPENERS[name](tmp_path)(SystemClock()))
        async with serving(board.spec()) as client, watching(client.port, "/board/watch") as stream:
            async with board.store.transaction() as tx:
                for id in "abc":
                    await tx.put(CLIP, Clip(id, "t"))
            revision = await board.put("d")
            events = [event for _ in range(4) if (event := await stream.next()) is not None]
            first = str(events[0].data["revision"])
            assert [event.id for event in events] == [None, None, first, str(revision)]
        await board.store.engine.close()

    run(scenario)


@pytest.mark.parametrize("name", OPENERS)
def test_a_client_that_reconnects_misses_and_repeats_nothing(name: str, tmp_path: Any) -> None:
    async def scenario() -> None:
        board = Board(await OPENERS[name](tmp_path)(SystemClock()))
        async with serving(board.spec()) as client:
            revisions = [await board.put(f"k{number}") for number in range(5)]
            path = f"/board/watch?since={revisions[0]}"
            async with watching(client.port, path) as stream:
                assert [await stream.next(), await stream.next()] == [
                    put("k1", "t", revisions[1]),
                    put("k2", "t", revisions[2]),
                ]
            # The header of the reconnecting client takes precedence over its URL.
            async with watching(client.port, path, Last_Event_ID=stream.last_id) as stream:
                assert await stream.next() == put("k3", "t", revisions[3])
                assert await stream.next() == put("k4", "t", revisions[4])
                for number in range(5, 8):
                    revision = await board.put(f"k{number}")
                    assert await stream.next() == put(f"k{number}", "t", revision)
            await asyncio.sleep(0)
        assert len(board.hub) == 0
        await board.store.engine.close()

    run(scenario)


def test_every_client_gets_the_same_events_from_one_watch() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        async with serving(board.spec()) as client:
            async with asyncio.TaskGroup() as group:
                start = await board.put("start")
                seen: list[list[Any]] = []

                async def one(since: int | None) -> None:
                    path = "/board/watch" + ("" if since is None else f"?since={since}")
                    async with watching(client.port, path) as stream:
                        events: list[Any] = []
                        seen.append(events)
                        while (event := await stream.next()) is not None:
                            if event.data["key"] != "clip:start":
                                events.append(event)
                            if event.data["key"] == "clip:end":
                                return

                for number in range(12):
                    group.create_task(one(None if number % 3 else start - 1))
                await until(lambda: len(seen) >= 12)
                assert board.hub.feeds == 1
                for number in range(30):
                    await board.put(f"k{number}")
                    if number % 10 == 0:
                        await loop_turns(5)
                await board.put("end")
            assert all(events == seen[0] for events in seen)
            assert [event.data["key"] for event in seen[0]] == [
                *(f"clip:k{number}" for number in range(30)),
                "clip:end",
            ]
            await until(lambda: not len(board.hub))
            assert board.hub.feeds == 0

    run(scenario)


def test_a_filter_and_a_tenant_see_their_own_changes_only() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        token = {"Authorization": "Bearer bob:read"}
        async with (
            serving(board.spec()) as client,
            watching(client.port, "/board/watch?id=b") as one,
            watching(client.port, "/board/mine", **token) as other,
        ):
            await board.put("a")
            revision = await board.put("b")
            assert await one.next() == put("b", "t", revision)
            bobs = Store(BOARD, board.store.engine, "bob")
            stored = await bobs.put(CLIP, Clip("c", "t"))
            assert await other.next() == put("c", "t", stored.revision)

    run(scenario)


@pytest.mark.parametrize("since", [0, 1_000_000])
def test_a_pruned_or_future_revision_is_reported_as_expired(since: int) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(changes_kept=10)
        board = Board(engine)
        await board.put("a")
        if since == 0:
            for number in range(40):
                await Store(BOARD, engine, "other").put(CLIP, Clip(str(number), "t"))
            await engine.sweep(limit=1)
        async with (
            serving(board.spec()) as client,
            watching(client.port, f"/board/watch?since={since}") as stream,
        ):
            assert await stream.next() == SentEvent("expired", {}, "")
            assert await stream.next() is None

    run(scenario)


def test_an_invalid_last_event_id_is_rejected() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        async with serving(board.spec()) as client:
            for id in ("x", "-1", "9" * 30):
                sent = await client.get("/watch", headers={"Last-Event-ID": id})
                assert sent.status_code == 400
            assert (await client.head("/watch")).headers["content-type"] == "text/event-stream"
            assert len(board.hub) == 0

    run(scenario)


def test_heartbeats_are_comments_and_need_no_real_time() -> None:
    async def scenario() -> None:
        beats: asyncio.Queue[float] = asyncio.Queue()
        released = asyncio.Event()

        async def sleep(seconds: float) -> None:
            beats.put_nowait(seconds)
            await released.wait()
            released.clear()

        board = Board(await open_engine("memory:"), sleep=sleep)
        async with serving(board.spec()) as client, watching(client.port, "/board/watch") as stream:
            assert await beats.get() == 15
            for _ in range(2):
                released.set()
                await stream.heartbeat()
            revision = await board.put("a")
            assert await stream.next() == put("a", "t", revision)

    run(scenario)


def test_shutdown_ends_streams_at_once_and_they_are_not_slow_requests() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        with capture_logs() as logs:
            async with serving(board.spec(), drain_seconds=3_600, slow_seconds=1e-9) as client:
                stream = watching(client.port, "/board/watch")
                started = perf_counter()
                events = await stream.__aenter__()
                head_seconds = perf_counter() - started
                assert client.app.metrics.in_flight == 0, "a stream is not a request in flight"
                await until(lambda: perf_counter() - started > 2 * head_seconds)
            assert await events.next() is None
            await stream.__aexit__(None, None, None)
        [line] = [each for each in logs if each["event"] == "slow request"]
        assert line["milliseconds"] <= 1_000 * head_seconds, "until its head was sent"
        assert len(board.hub) == 0

    run(scenario)


def test_more_streams_than_allowed_are_rejected() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"), streams_max=2)
        async with (
            serving(board.spec()) as client,
            watching(client.port, "/board/watch"),
            watching(client.port, "/board/watch"),
        ):
            rejected = await client.get("/watch")
            assert (rejected.status_code, rejected.json()["code"]) == (503, "RATE_LIMITED")

    run(scenario)


def test_a_client_that_reads_slowly_gets_the_newest_and_costs_bounded_memory() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"), pending_bytes_max=20_000)
        source = await board.hub.stream(board.store, CLIP).subscribe(None)
        for number in range(500):  # 100 KB each key: more than may be unsent
            await board.put(f"k{number % 7}", f"{number}" + "x" * 1_000)
            if number % 5 == 0:
                await loop_turns(3)
            assert source.pending_bytes <= 2 * 20_000  # type: ignore[attr-defined]
        latest: dict[str, str] = {}
        revisions: list[int] = []
        while len(latest) < 7 or any(int(t.rstrip("x")) < 493 for t in latest.values()):
            async with asyncio.timeout(30):
                blocks = await source.next()
            assert blocks is not None
            for block in blocks.decode().split("\n\n")[:-1]:
                if block.startswith(":"):
                    continue
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                data = msgspec.json.decode(fields["data"])
                latest[data["key"]] = data["value"]["title"]
                revisions.append(data["revision"])
        assert revisions == sorted(set(revisions)), "in order, and none twice"
        assert len(revisions) < 500, "of several changes of one key only the newest"
        source.close()
        assert await source.next() is None

    run(scenario)


def test_a_client_that_reads_slowly_pays_for_what_it_catches_up_with() -> None:
    """The shared watch runs in the request of its first client, who paid for the reads of
    all others that were slow."""

    async def scenario() -> None:
        store = Store(BOARD, ServedEngine(MemoryEngine()), "shared")
        hub = EventHub(pending_bytes_max=2_000)
        rows = {"ann": 0, "bob": 0}

        async def opened(name: str) -> EventSource:
            def count(read: int, size: int) -> None:
                rows[name] += read

            read_meter.set(count)
            return await hub.stream(store, CLIP).subscribe(None)

        ann, bob = [await asyncio.create_task(opened(name)) for name in rows]
        assert b"caught-up" in (await ann.next() or b"")
        for number in range(40):
            await store.put(CLIP, Clip(f"c{number:02d}", "t" * 100))
            assert await ann.next()
        received = b""
        while b"c39" not in received:
            received += await bob.next() or b""
        assert rows["bob"] >= 20 and rows["ann"] == 0
        for source in (ann, bob):
            source.close()

    asyncio.run(scenario())


def test_a_stream_of_several_records_has_members_that_a_type_does_not() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        async with serving(board.spec()) as client:
            await board.put("a")
            row = b'{"id":"b","title":"t","colour":"red"}'
            await board.store.engine.commit("ann", Batch(puts=(Put("tag:b", row),)))
            async with watching(client.port, "/board/all?since=0") as stream:
                found = [await stream.next(), await stream.next()]
                assert [each and each.data for each in found] == [
                    {"key": "clip:a", "stored": None},
                    {"key": "tag:b", "stored": row.decode()},
                ]

    run(scenario)


def test_a_stream_of_several_records_is_rejected_if_it_cannot_be_watched() -> None:
    async def scenario() -> None:
        board = Board(await open_engine("memory:"))
        stream = board.hub.stream
        with pytest.raises(UsageError, match="needs the records"):
            stream(board.store)
        with pytest.raises(UsageError, match="needs `encode`, and takes no prefix"):
            stream(board.store, CLIP, TAG)
        with pytest.raises(UsageError, match="takes no prefix and no fields"):
            stream(board.store, CLIP, TAG, encode=shown, prefix="a")
        with pytest.raises(UsageError, match="takes no prefix and no fields"):
            stream(board.store, CLIP, TAG, encode=shown, id="a")
        with pytest.raises(UsageError, match=r"one with a legacy key. \(record='old'\)"):
            stream(board.store, CLIP, OLD, encode=shown)

    run(scenario)


def test_a_broadcast_goes_to_all_who_listen_after_the_state_that_they_start_with() -> None:
    async def scenario() -> None:
        async def state() -> list[tuple[str, Any]]:
            return [("state", {"n": 1})]

        hub = EventHub(streams_max=2)
        await hub.broadcast("news", 0)  # nobody listens
        one, other = [await hub.broadcasts(state).subscribe(None) for _ in range(2)]
        with pytest.raises(BusyError):
            await hub.broadcasts(state).subscribe(None)
        await hub.broadcast("news", {"n": 2})
        blocks = b'event: state\ndata: {"n":1}\n\nevent: news\ndata: {"n":2}\n\n'
        assert await one.next() == await other.next() == blocks
        one.close()
        assert await one.next() is None and len(hub) == 1
        other.close()
        assert len(hub) == 0

    asyncio.run(scenario())


def test_who_reads_broadcasts_too_slowly_loses_the_oldest() -> None:
    async def scenario() -> None:
        async def state() -> list[tuple[str, Any]]:
            return []

        hub = EventHub(pending_bytes_max=100)
        listener = await hub.broadcasts(state).subscribe(None)
        for number in range(50):
            await hub.broadcast("n", number)
        received = await listener.next()
        assert received is not None and len(received) <= 100
        assert received.endswith(b"event: n\ndata: 48\n\nevent: n\ndata: 49\n\n")
        listener.close()

    asyncio.run(scenario())


def test_a_broadcast_stream_whose_state_fails_is_closed() -> None:
    async def scenario() -> None:
        async def state() -> list[tuple[str, Any]]:
            raise UsageError("No state.")

        hub = EventHub()
        with pytest.raises(UsageError):
            await hub.broadcasts(state).subscribe(None)
        assert len(hub) == 0

    asyncio.run(scenario())
