"""JetStream killed or stopped under load: no acknowledged write is lost, none is applied twice, and
the service recovers.

A run proves something only if many writes preceded the first fault and the faults hit writes in
flight: both are asserted.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.limits import CHANGES_KEPT
from keyhouse.nats.server import NatsServer
from keyhouse.testing.faults import FaultyEngine
from keyhouse.testing.generator import generate
from keyhouse.testing.script import play
from keyhouse.testing.servers.nats_cluster import NatsCluster
from tests.engines.support.jetstream_load import SPACE, Load
from tests.engines.support.jetstream_races import Race
from tests.sizes import SOAK, size
from tests.support.engine_openers import OPENERS
from tests.support.nats_servers import own_server, url_of
from tests.support.seeds import new_seed

KILLS = size(5, 20, 200)
CLUSTER_FAULTS = size(2, 6, 240)
"""The first of two hits the leader."""

HELD_UP_SECONDS = 1.0
"""A lost leader delays writers longer than any other pause: proof that the fault took effect."""

ACKNOWLEDGED_PER_SECOND_MIN = 100 if SOAK else 0
UP_AGAIN_SECONDS_MAX = 5
UP_AGAIN_SHARE = 0.9
"""Time until writes succeed after a restart, in this share of all cases of a soak. The start of the
server itself is included."""

SLOWEST_SECONDS_MAX = 5
"""Time until writes succeed after the server is ready, in all cases of a soak."""

CLUSTER_UP_AGAIN_SECONDS_MAX = 15
"""An election takes 4 to 9 seconds, and may have to be repeated. Of a soak."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with own_server(tmp_path / "nats") as started:
        yield started


@pytest.mark.parametrize(
    "loss",
    [
        Batch(deletes=("take:writer-1",)),
        Batch(puts=(Put("writes", b"7"),)),
        Batch(deletes=tuple(f"reel:writer-1 reel {number}" for number in range(3))),
        Batch(puts=(Put("idx:take:00000000:writer-1", b"1"),)),
    ],
    ids=["a record", "a count", "a derived row", "an old derived row"],
)
def test_the_checks_detect_a_lost_write(loss: Batch) -> None:
    """Without this, the tests below would prove nothing."""

    async def scenario() -> None:
        load = Load(FaultyEngine(MemoryEngine(), yields=True), writers=4)
        async with load.running():
            await load.until(50)
        assert not await load.faults()
        await load.store.engine.commit(load.store.space, loss)
        assert await load.faults()

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.soak
def test_no_acknowledged_write_is_lost_when_the_server_is_killed(server: NatsServer) -> None:
    dice = random.Random(new_seed())

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        load = Load(engine)
        hits = 0
        outages: list[float] = []
        waits: list[float] = []
        async with load.running():
            rate = await load.at_speed(ACKNOWLEDGED_PER_SECOND_MIN)
            while len(outages) < KILLS or hits < KILLS // 4:  # until enough kills hit a write
                await load.until(dice.randrange(5, 40))
                if len(outages) % 2:
                    await load.under_way(dice)
                unknown, killed = load.unknown, time.monotonic()
                server.kill()
                server.start()
                await asyncio.to_thread(server.ready)
                ready = time.monotonic()
                await load.until(1)
                outages.append(time.monotonic() - killed)
                waits.append(time.monotonic() - ready)
                hits += load.unknown > unknown
        faults = await load.faults()
        await engine.close()
        shown = (
            f"up again in {min(outages):.1f} to {max(outages):.1f} s,"
            f" {max(waits):.1f} s after the server"
        )
        print(
            f"{rate:.0f} writes/s, {len(load.times)} in all,"
            f" {load.unknown} unknown at {hits} kills; {shown}"
        )
        assert not faults
        if SOAK:
            assert max(waits) <= SLOWEST_SECONDS_MAX, shown
            assert sorted(outages)[int(KILLS * UP_AGAIN_SHARE) - 1] <= UP_AGAIN_SECONDS_MAX, shown

    asyncio.run(scenario())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    started = NatsCluster(tmp_path / "nats")
    started.start()
    started.ready()
    yield started
    started.stop()


@pytest.mark.long
@pytest.mark.soak
def test_three_replicas_match_the_history_of_the_model(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    async def opener(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        url = f"{cluster.url}/?bucket=script&sync=always&replicas=3"
        return JetstreamEngine.open(url, clock=clock, changes_kept=changes_kept)

    seed = new_seed()
    script = generate(seed, size(250, 1_000, 1_000))
    assert asyncio.run(play(script, opener)) == asyncio.run(
        play(script, OPENERS["memory"](tmp_path))
    ), f"seed {seed}"


def test_racing_engines_on_three_replicas_lose_no_update_and_no_check(
    cluster: NatsCluster,
) -> None:
    seed = new_seed()

    async def scenario() -> None:
        assert not await Race(f"{cluster.url}/?bucket=race&sync=always&replicas=3", seed).faults()

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.soak
def test_no_acknowledged_write_is_lost_when_nodes_of_three_are_killed(cluster: NatsCluster) -> None:
    _in_a_cluster(cluster, NatsServer.kill, NatsServer.start, away_seconds=2 if SOAK else 1)


@pytest.mark.long
@pytest.mark.soak
def test_no_acknowledged_write_is_lost_when_nodes_of_three_hang(cluster: NatsCluster) -> None:
    _in_a_cluster(cluster, NatsServer.pause, NatsServer.resume, away_seconds=14 if SOAK else 2)


def _in_a_cluster(
    cluster: NatsCluster,
    fell: Callable[[NatsServer], None],
    raise_again: Callable[[NatsServer], None],
    *,
    away_seconds: float,
) -> None:
    dice = random.Random(new_seed())

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(cluster, "&replicas=3"))
        load = Load(engine)
        slowest, began = 0.0, time.monotonic()
        async with load.running():
            rate = await load.at_speed(ACKNOWLEDGED_PER_SECOND_MIN)
            for number in range(CLUSTER_FAULTS):
                await load.until(dice.randrange(20, 200))
                node = await _chosen(cluster, dice, leader=number % 2 == 0)
                fell(node)
                if number % 2 == 0:
                    await load.held_up(HELD_UP_SECONDS)
                await asyncio.sleep(dice.uniform(0, away_seconds))
                raise_again(node)
                healed = time.monotonic()
                await load.until(1)
                slowest = max(slowest, time.monotonic() - healed)
        faults = await load.faults()
        await engine.close()
        print(
            f"{rate:.0f} writes/s, {len(load.times)} in all, {load.unknown} unknown, "
            f"{load.unavailable} unavailable;"
        )
        print(
            f"{CLUSTER_FAULTS} faults, outage at most {load.longest_outage(began):.1f} s, "
            f"{slowest:.1f} s after healing"
        )
        assert not faults
        if SOAK:
            assert slowest <= CLUSTER_UP_AGAIN_SECONDS_MAX

    asyncio.run(scenario())


async def _chosen(cluster: NatsCluster, dice: random.Random, *, leader: bool) -> NatsServer:
    """Return the node that leads the stream, or any."""
    if not leader:
        return dice.choice(cluster.nodes)
    client = await nats.connect([f"nats://127.0.0.1:{node.port}" for node in cluster.nodes])
    try:
        while True:
            with suppress(nats.errors.Error):  # while one is elected
                info = await client.jetstream().stream_info(f"KV_{SPACE}")
                for number, node in enumerate(cluster.nodes):
                    if info.cluster is not None and info.cluster.leader == f"{node.name}-{number}":
                        return node
    finally:
        await client.close()
