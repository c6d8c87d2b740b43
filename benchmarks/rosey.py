"""Rows 1 and 2: a plugin's `get` and `set` over NATS, against an echo with the same client; and how long each takes.

The server, the echo and the service are processes of their own. The echo is the least that an answer over NATS costs: it
reads nothing and writes nothing. The peer is JetStream KV, on the same server, which syncs every write.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import nats
from nats.aio.client import Client
from nats.js.api import StorageType

from benchmarks.contest import Contestant, contest, percentile
from benchmarks.figure import Figure
from benchmarks.responder import responder
from keyhouse.engines.jetstream.server import NatsServer

IN_FLIGHT = 64
KEYS = 1_000
VALUE = {"players": ["alice", "bob"], "round": 2, "question": "x" * 60}
LATENCY_IN_FLIGHT = (1, 10, 64, 256)

Ask = Callable[[int], Awaitable[object]]


class Latency(msgspec.Struct):
    """Milliseconds."""

    operation: str
    in_flight: int
    p50: float
    p95: float
    p99: float
    per_second: float


class Asker:
    """The one client of all contestants."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._gets = [json.dumps({"key": f"game_{number}"}).encode() for number in range(KEYS)]
        self._sets = [json.dumps({"key": f"game_{number}", "value": VALUE}).encode() for number in range(KEYS)]

    async def get(self, number: int) -> None:
        answer = await self._client.request("db.kv.trivia.get", self._gets[number % KEYS], timeout=30)
        assert answer.data.startswith(b'{"success":true,"exists":true'), answer.data

    async def set(self, number: int) -> None:
        answer = await self._client.request("db.kv.trivia.set", self._sets[number % KEYS], timeout=30)
        assert answer.data == b'{"success":true}', answer.data

    async def echo_get(self, number: int) -> None:
        await self._client.request("echo.get", self._gets[number % KEYS], timeout=30)

    async def echo_set(self, number: int) -> None:
        await self._client.request("echo.set", self._sets[number % KEYS], timeout=30)


def many(ask: Ask, count: int, in_flight: int, spent: list[float] | None = None) -> Contestant:
    async def work() -> int:
        numbers = iter(range(count))

        async def again() -> None:
            for number in numbers:
                start = time.perf_counter()
                await ask(number)
                if spent is not None:
                    spent.append(time.perf_counter() - start)

        await asyncio.gather(*(again() for _ in range(in_flight)))
        return count

    return work


async def measure(
    folder: Path, rounds: int, *, quick: bool, engine: str | None = None
) -> tuple[list[Figure], list[Latency]]:
    server = NatsServer(folder / "nats")
    server.start()
    try:
        await asyncio.get_running_loop().run_in_executor(None, server.ready)
        where = engine or f"sqlite:{folder}/rosey.db?layout=rosey"
        async with responder(server.url, "echo"), responder(server.url, where):
            client = await nats.connect(server.url)
            try:
                return await _measure(client, rounds, 2_000 if quick else 10_000)
            finally:
                await client.close()
    finally:
        server.stop()


async def _measure(client: Client, rounds: int, count: int) -> tuple[list[Figure], list[Latency]]:
    asker = Asker(client)
    kv = await client.jetstream().create_key_value(bucket="peer", storage=StorageType.FILE)
    data = json.dumps(VALUE).encode()
    await many(asker.set, KEYS, IN_FLIGHT)()
    await many(lambda number: kv.put(f"game_{number % KEYS}", data), KEYS, IN_FLIGHT)()
    got = await contest(
        {
            "ours": many(asker.get, count, IN_FLIGHT),
            "limit": many(asker.echo_get, count, IN_FLIGHT),
            "peer": many(lambda number: kv.get(f"game_{number % KEYS}"), count // 4, IN_FLIGHT),
        },
        rounds=rounds,
    )
    put = await contest(
        {
            "ours": many(asker.set, count, IN_FLIGHT),
            "limit": many(asker.echo_set, count, IN_FLIGHT),
            "peer": many(lambda number: kv.put(f"game_{number % KEYS}", data), count // 10, IN_FLIGHT),
        },
        rounds=rounds,
    )
    figures = [
        Figure(
            row="1",
            work="plugin get over NATS, 64 in flight",
            unit="get/s",
            results=list(got.values()),
            goal=0.80,
            peer_goal=1.5,
            note="limit: an echo; peer: JetStream KV get",
        ),
        Figure(
            row="2",
            work="plugin set over NATS, durable, 64 in flight",
            unit="set/s",
            results=list(put.values()),
            goal=0.60,
            peer_goal=2,
            note="limit: an echo, which writes nothing; peer: JetStream KV put, synced always",
        ),
    ]
    return figures, [
        await _latency(name, ask, in_flight, count // 2)
        for name, ask in (("get", asker.get), ("set", asker.set), ("echo", asker.echo_get))
        for in_flight in LATENCY_IN_FLIGHT
    ]


async def _latency(operation: str, ask: Ask, in_flight: int, count: int) -> Latency:
    count = max(200, count // 10) if in_flight == 1 else count
    spent: list[float] = []
    start = time.perf_counter()
    await many(ask, count, in_flight, spent)()
    speed = count / (time.perf_counter() - start)
    p50, p95, p99 = (percentile(spent, percent) * 1_000 for percent in (50, 95, 99))
    return Latency(operation, in_flight, p50, p95, p99, speed)
