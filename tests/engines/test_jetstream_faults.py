"""Servers that are not there, hang, fall and rise: clear errors, nothing lost, nothing twice, and service again."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Add, Batch, Engine, Put
from keyhouse.engines.jetstream import JetstreamEngine, bucket, patience, wire
from keyhouse.engines.jetstream.message import Message
from keyhouse.engines.jetstream.server import NatsCluster, NatsServer
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.limits import CHANGES_KEPT
from keyhouse.testing.conformance.stage import step
from keyhouse.testing.faults import FaultyEngine
from keyhouse.testing.generator import generate
from keyhouse.testing.script import play
from tests.engines.nats_load import Load
from tests.engines.nats_races import Race
from tests.engines.nats_servers import nats_server
from tests.engines.openers import OPENERS
from tests.engines.test_jetstream import ALL, put, value
from tests.soak import SOAK, size

KILLS = size(20, 200)
CLUSTER_SECONDS = size(20, 20 * 60)
ACKNOWLEDGED_PER_SECOND_MIN = 100
UP_AGAIN_SECONDS_MAX = 5
BUSY_UP_AGAIN_SECONDS_MAX = 30
"""One time in ten, where a machine that has much else to do gives the server no turn."""

CLUSTER_UP_AGAIN_SECONDS_MAX = 15


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    started = NatsServer(tmp_path / "nats")
    started.start()
    started.ready()
    yield started
    started.kill()


def url_of(server: NatsServer | NatsCluster, more: str = "") -> str:
    return f"{server.url}/?prefix=&sync=always{more}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (patience, bucket):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 1.0)


# Not there


def test_a_server_that_is_not_there_is_said_to_be_so(impatient: None) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open("nats://127.0.0.1:1/?sync=always")
        for call in (engine.read("s", ["a"]), engine.commit("s", Batch(puts=(Put("a", b"1"),)))):
            with pytest.raises(UnavailableError, match="can't be reached"):
                await call
        await engine.close()

    asyncio.run(scenario())


def test_what_is_tried_while_the_server_is_gone_is_not_written_later(server: NatsServer, impatient: None) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.kill()
        await asyncio.sleep(0.1)
        for batch in (Batch(puts=(Put("b", b"1"),)), Batch(puts=(Put("b", b"1"), Put("c", b"1")))):
            with pytest.raises(UnavailableError):
                await engine.commit("s", batch)
        with pytest.raises(UnavailableError):
            await engine.read("s", ["a"])
        server.start()
        server.ready()
        assert await value(engine, "a") == b"1"
        await asyncio.sleep(0.5)
        assert await engine.read("s", ["b", "c"]) == [None, None]
        await put(engine, "b", value=b"2")
        assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a", "b"]
        await engine.close()

    asyncio.run(scenario())


def test_a_restart_that_is_short_is_waited_for(server: NatsServer) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        server.stop()
        await asyncio.sleep(0.1)
        server.start()
        revision = await put(engine, "after")
        assert (await step(watch)).revision == revision
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_a_watch_waits_for_a_server_that_is_away_for_long(server: NatsServer, impatient: None) -> None:
    """Even for the value of a change that it has heard of; one that begins meanwhile is told."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server, "&values=1"))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        heard = await put(engine, "heard")
        server.kill()
        waiting = asyncio.ensure_future(step(watch))
        with pytest.raises(UnavailableError):
            await step(engine.watch("s", ALL))
        await asyncio.wait([waiting], timeout=2.5 * patience.PATIENCE_SECONDS)
        assert not waiting.done()
        server.start()
        assert (await waiting).revision == heard
        after = await put(engine, "after")
        assert (await step(watch)).revision == after
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_a_commit_that_is_not_answered_is_unknown_and_its_repeat_applies_once(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await engine.commit("s", Batch(adds=(Add("n", 1),)))
        assert engine._wire is not None
        ask = engine._wire.ask

        async def impatient(messages, *, seconds=0.3):  # type: ignore[no-untyped-def]
            return await ask(messages, seconds=min(seconds, 0.3))

        monkeypatch.setattr(engine._wire, "ask", impatient)
        server.pause()
        batch = Batch(adds=(Add("n", 10),), puts=(Put("a", b"1"),), id="once")
        with pytest.raises(UnknownOutcomeError):
            await engine.commit("s", batch)
        server.resume()
        monkeypatch.setattr(engine._wire, "ask", ask)
        first = await engine.commit("s", batch)
        assert await engine.commit("s", batch) == first
        assert await value(engine, "n") == b"11"
        await engine.close()

    asyncio.run(scenario())


def test_what_arrives_late_does_not_replace_what_was_written_since(server: NatsServer) -> None:
    """A message that hung in a stopped server, or on the way, and that nobody waits for any more."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a", value=b'"old"')
        assert engine._wire is not None
        sent: list[list[Message]] = []
        ask = engine._wire.ask

        async def remember(messages, **options):  # type: ignore[no-untyped-def]
            sent.append(messages)
            return await ask(messages, **options)

        engine._wire.ask = remember  # type: ignore[method-assign]
        await put(engine, "a", value=b'"late"')
        late = [messages for messages in sent if messages[-1].subject.startswith("$KV.")]
        await put(engine, "a", value=b'"new"')
        for messages in late:
            assert b"wrong last sequence" in (await ask(messages)).data
        assert await value(engine, "a") == b'"new"'
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_hangs_is_left_and_found_again(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PING_SECONDS", 0.2)

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.pause()
        with pytest.raises((UnknownOutcomeError, UnavailableError)):
            await put(engine, "b")
        server.resume()
        began = time.monotonic()
        await put(engine, "c")
        assert time.monotonic() - began < UP_AGAIN_SECONDS_MAX
        await engine.close()

    asyncio.run(scenario())


# Refused


@pytest.mark.parametrize(
    ("version", "payload", "says"), [("2.11.9", 1_048_576, "2.12.0"), ("2.12.0", 65_536, "max_payload")]
)
def test_a_server_that_can_not_do_it_is_refused_with_what_it_needs(version: str, payload: int, says: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": version, "max_payload": payload, "headers": True, "proto": 1}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(speak, "127.0.0.1", 0) as old:
            port = old.sockets[0].getsockname()[1]
            engine = JetstreamEngine.open(f"nats://127.0.0.1:{port}")
            with pytest.raises(UsageError, match=says):
                await engine.read("s", ["a"])
            await engine.close()

    asyncio.run(scenario())


def test_a_server_that_does_not_sync_as_the_url_says_is_refused(tmp_path: Path) -> None:
    class Lazy(NatsServer):
        def _configuration(self) -> dict[str, object]:
            configuration = super()._configuration()
            del configuration["jetstream"]["sync_interval"]
            return configuration

    async def scenario(server: NatsServer, accepted: bool) -> None:
        engine = JetstreamEngine.open(url_of(server, f"&monitor={server.monitor}"))
        if accepted:
            await put(engine, "a")
        else:
            with pytest.raises(UsageError, match="sync_interval"):
                await put(engine, "a")
        await engine.close()

    lazy = Lazy(tmp_path)
    lazy.start()
    lazy.ready()
    asyncio.run(scenario(lazy, accepted=False))
    lazy.stop()
    asyncio.run(scenario(nats_server(), accepted=True))


# The server of our own


def test_the_server_listens_on_loopback_only_and_syncs_always(server: NatsServer) -> None:
    configuration = json.loads((server.folder / "nats-server.json").read_text())
    assert configuration["host"] == "127.0.0.1"
    assert configuration["http"].startswith("127.0.0.1:")
    assert configuration["jetstream"]["sync_interval"] == "always"


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from keyhouse.engines.jetstream.server import NatsServer\n"
        "server = NatsServer(pathlib.Path(sys.argv[1]))\n"
        "server.start(); server.ready(); print(server.process_id, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline, "the server outlives the process that started it"
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# Under load


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
def test_what_was_lost_is_found(loss: Batch) -> None:
    """The kills below prove something only if this does."""

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
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(server: NatsServer) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    dice = random.Random(seed)

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        load = Load(engine)
        outages: list[float] = []
        async with load.running():
            rate = await load.at_speed(ACKNOWLEDGED_PER_SECOND_MIN)
            while len(outages) < KILLS or (not load.unknown and len(outages) < 2 * KILLS):  # until one has hit a write
                await load.until(dice.randrange(5, 40))
                await asyncio.sleep(dice.uniform(0, 0.02))
                server.kill()
                killed = time.monotonic()
                server.start()
                await load.until(1)
                outages.append(time.monotonic() - killed)
        faults = await load.faults()
        await engine.close()
        outages.sort()
        shown = f"up again in {outages[0]:.1f} to {outages[-1]:.1f} s"
        print(f"{rate:.0f} writes/s, {len(load.times)} in all, {load.unknown} unknown; {shown}")
        assert not faults
        assert load.unknown + load.unavailable > 0, "no kill hit a write"
        assert outages[len(outages) * 9 // 10 - 1] <= UP_AGAIN_SECONDS_MAX, shown
        assert outages[-1] <= BUSY_UP_AGAIN_SECONDS_MAX, shown

    asyncio.run(scenario())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    started = NatsCluster(tmp_path / "nats")
    started.start()
    started.ready()
    yield started
    started.stop()


@pytest.mark.long
def test_three_replicas_have_the_history_of_the_model(cluster: NatsCluster, tmp_path: Path) -> None:
    async def opener(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        url = f"{cluster.url}/?bucket=script&sync=always&replicas=3"
        return JetstreamEngine.open(url, clock=clock, changes_kept=changes_kept)

    seed = random.randrange(10**9)
    script = generate(seed, 1_000)
    assert asyncio.run(play(script, opener)) == asyncio.run(play(script, OPENERS["memory"](tmp_path))), f"seed {seed}"


def test_engines_that_race_on_three_replicas_lose_no_update_and_hold_every_check(cluster: NatsCluster) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)

    async def scenario() -> None:
        assert not await Race(f"{cluster.url}/?bucket=race&sync=always&replicas=3", seed).faults()

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.soak
def test_nothing_acknowledged_is_lost_when_nodes_of_three_are_killed(cluster: NatsCluster) -> None:
    _in_a_cluster(cluster, NatsServer.kill, NatsServer.start, away_seconds=2)


@pytest.mark.long
@pytest.mark.soak
def test_nothing_acknowledged_is_lost_when_nodes_of_three_hang(cluster: NatsCluster) -> None:
    _in_a_cluster(cluster, NatsServer.pause, NatsServer.resume, away_seconds=14 if SOAK else 4)


def _in_a_cluster(
    cluster: NatsCluster,
    fell: Callable[[NatsServer], None],
    raise_again: Callable[[NatsServer], None],
    *,
    away_seconds: float,
) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    dice = random.Random(seed)

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(cluster, "&replicas=3"))
        load = Load(engine)
        slowest = 0.0
        async with load.running():
            await load.until(1, seconds=60)
            rate = await load.at_speed(ACKNOWLEDGED_PER_SECOND_MIN)
            began, faults_made = time.monotonic(), 0
            while time.monotonic() < began + CLUSTER_SECONDS or faults_made < 3:
                await load.until(dice.randrange(20, 200))
                node = dice.choice(cluster.nodes)
                fell(node)
                await asyncio.sleep(dice.uniform(0, away_seconds))
                raise_again(node)
                healed = time.monotonic()
                await load.until(1, seconds=60)
                slowest = max(slowest, time.monotonic() - healed)
                faults_made += 1
        faults = await load.faults()
        await engine.close()
        print(f"{rate:.0f} writes/s, {len(load.times)} in all, {load.unknown} unknown, {load.unavailable} unavailable;")
        print(f"{faults_made} faults, outage at most {load.longest_outage(began):.1f} s, {slowest:.1f} s after healing")
        assert not faults
        assert slowest <= CLUSTER_UP_AGAIN_SECONDS_MAX

    asyncio.run(scenario())
