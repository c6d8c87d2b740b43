"""Two processes of the service on a NATS cluster of three nodes, with three replicas: a node is
killed under load, then a process. Nothing acknowledged is lost, and members at most reconnect."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from keyhouse.nats.server import NatsServer
from keyhouse.testing.servers.nats_cluster import NatsCluster
from keyhouse_playlist.schema import ITEM_LIKES, PLAYLIST, PLAYLIST_INDEX
from systems.playlist.tests.support.processes import EventReader, Shared, processes, shared
from systems.playlist.tests.support.service import item
from tests.serve.support.serve_process import Serving
from tests.sizes import SOAK, size
from tests.support.polling import until

ITEMS = [item(f"v{number}", f"Title {number}", seconds=100) for number in range(3)]
WRITERS = 8
SAVED = size(2, 20, 200)
SILENCE_SECONDS_MAX = 30.0
"""Longest time in which nothing is acknowledged: an election. Asserted in a soak."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    started = NatsCluster(tmp_path / "nats")
    started.start()
    try:
        started.ready()
        yield started
    finally:
        started.stop()


class Member:
    """Saves playlists and likes, one after the other, and tries again after a failure. It goes to
    the other process if it cannot connect to its own."""

    def __init__(self, number: int, clients: list[httpx.AsyncClient]) -> None:
        self._number = number
        self._clients = clients
        self.at = number % len(clients)
        self.saved: dict[str, str] = {}
        self.acknowledged_at: list[float] = []
        self.refusals: Counter[int] = Counter()
        self.reconnects = 0
        self.sign_ins_lost = 0

    async def run(self, stop: asyncio.Event) -> None:
        for number in itertools.count():
            name = f"member {self._number} list {number}"
            body = {"name": name, "items": [{"video_id": "v1"}]}
            answer = await self.call("POST", "/playlists", json=body)
            if answer.status_code == 201:
                self.saved[answer.json()["playlist_id"]] = name
            else:  # the attempt before it succeeded, and its answer was lost
                assert answer.json()["error"]["code"] == "name_taken", answer.text
            if stop.is_set():
                return

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask until there is an answer that is not a failure of the service."""
        while True:
            try:
                answer = await self._clients[self.at].request(method, path, **options)
            except httpx.TransportError:
                self.reconnects += 1
                self.at = (self.at + 1) % len(self._clients)
                await asyncio.sleep(0.1)
                continue
            if answer.status_code < 500:
                self.sign_ins_lost += answer.status_code == 401
                self.acknowledged_at.append(time.monotonic())
                return answer
            self.refusals[answer.status_code] += 1
            await asyncio.sleep(0.1)


async def leader_of(cluster: NatsCluster, bucket: str) -> NatsServer:
    client = await nats.connect([f"nats://127.0.0.1:{node.port}" for node in cluster.nodes])
    info = await client.jetstream(timeout=30).stream_info(f"KV_{bucket}")
    await client.close()
    assert info.cluster is not None and info.config.num_replicas == 3
    numbered = {f"{node.name}-{at}": node for at, node in enumerate(cluster.nodes)}
    return numbered[str(info.cluster.leader)]


async def make_robots_bucket(cluster: NatsCluster) -> None:
    client = await nats.connect(cluster.nodes[0].url)
    await until(
        lambda: client.jetstream().create_key_value(bucket="kryten_lounge_playlist", replicas=3),
        retry=nats.errors.Error,  # no leader yet
    )
    await client.close()


@pytest.mark.long
@pytest.mark.soak
def test_a_killed_node_and_a_killed_process_lose_nothing_acknowledged(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    asyncio.run(make_robots_bucket(cluster))
    with processes(tmp_path, cluster.url, ITEMS, engine="nats:?replicas=3") as served:

        async def main() -> None:
            async with shared(served, cluster.url, options="&replicas=3") as view:
                await scenario(cluster, served, view)

        asyncio.run(main())


async def all_save(members: list[Member]) -> None:
    """Wait until each member has saved some more playlists."""
    goals = [len(each.saved) + SAVED for each in members]
    await until(
        lambda: all(len(each.saved) >= goal for each, goal in zip(members, goals, strict=True))
    )


async def scenario(cluster: NatsCluster, served: list[Serving], view: Shared) -> None:
    await view.robot.play_media(ITEMS[1].manifest_url, "Title 1", 100)
    members = []
    for number in range(WRITERS):
        one = await view.member(0, "Bob")
        other = view.client(1, cookie=one.cookies["kryten_playlist_session"])
        members.append(Member(number, [one, other]))
    stop = asyncio.Event()
    async with EventReader(await view.member(1, "Vic")) as events:
        running = [asyncio.create_task(each.run(stop)) for each in members]
        await all_save(members)  # the buckets are there, and under load
        node = await leader_of(cluster, "kryten_playlist_playlists")
        node.kill()
        await all_save(members)
        assert not any(each.reconnects for each in members), "no process was lost yet"
        served[0].process.kill()
        await all_save(members)
        stop.set()
        await asyncio.gather(*running)
        likers = [Member(at, [await view.member(1, f"fan{at}")]) for at in range(16)]
        await asyncio.gather(*(each.call("POST", "/likes/current") for each in likers))
        await events.until(lambda _: len(events.data("like")) == 16)
    await check(view, members)


async def check(view: Shared, members: list[Member]) -> None:
    acknowledged = {id: name for each in members for id, name in each.saved.items()}
    times = sorted(at for each in members for at in each.acknowledged_at)
    silence = max(after - before for before, after in itertools.pairwise(times))
    refusals = sum((each.refusals for each in members), Counter[int]())
    print(f"{len(acknowledged)} saved, silence {silence:.1f} s, {dict(refusals)}")
    assert len(acknowledged) > WRITERS
    assert not SOAK or silence < SILENCE_SECONDS_MAX
    assert set(refusals) <= {503, 504}
    assert not any(each.sign_ins_lost for each in members)
    reader = Member(1, [await view.member(1, "Bob")])
    listed = (await reader.call("GET", "/playlists")).json()["playlists"]
    shown = {each["playlist_id"]: each["name"] for each in listed}
    index = await view.stores.playlists.members(PLAYLIST_INDEX)
    for id, name in acknowledged.items():
        stored = await view.stores.playlists.get(PLAYLIST, playlist_id=id)
        assert stored is not None and stored.name == name
        assert shown[id] == name and id in index
    assert len(set(shown.values())) == len(shown)  # no attempt was applied twice
    assert set(index) == set(shown)
    likes = await view.stores.likes.get(ITEM_LIKES, video_id="v1")
    assert likes is not None and likes.like_count == 16
