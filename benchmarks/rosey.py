"""Rows 1 and 2 with their peer, JetStream KV on the same server, which syncs every write; and how long requests take."""

import json
import time
from pathlib import Path

import msgspec
from nats.js.api import StorageType

from keyhouse.bench.contest import percentile
from keyhouse.bench.figure import Figure
from keyhouse.bench.plugin import KEYS, VALUE, Ask, Asker, asking, gets, sets

LATENCY_IN_FLIGHT = (1, 10, 64, 256)


class Latency(msgspec.Struct):
    """Milliseconds."""

    operation: str
    in_flight: int
    p50: float
    p95: float
    p99: float
    per_second: float


async def measure(
    folder: Path, rounds: int, *, quick: bool, engine: str | None = None
) -> tuple[list[Figure], list[Latency]]:
    async with asking(folder, engine) as asker:
        return await _measure(asker, rounds, 2_000 if quick else 10_000)


async def _measure(asker: Asker, rounds: int, count: int) -> tuple[list[Figure], list[Latency]]:
    kv = await asker.client.jetstream().create_key_value(bucket="peer", storage=StorageType.FILE)
    data = json.dumps(VALUE).encode()

    async def put(number: int) -> None:
        await kv.put(f"game_{number % KEYS}", data)

    async def get(number: int) -> None:
        await kv.get(f"game_{number % KEYS}")

    await asker.many(put, KEYS)()
    figures = [
        await gets(
            asker,
            rounds=rounds,
            count=count,
            others={"peer": asker.many(get, count // 4)},
            peer_goal=1.5,
            note="limit: an echo; peer: JetStream KV get",
        ),
        await sets(
            asker,
            rounds=rounds,
            count=count,
            others={"peer": asker.many(put, count // 10)},
            peer_goal=2,
            note="limit: an echo, which writes nothing; peer: JetStream KV put, synced always",
        ),
    ]
    return figures, [
        await _latency(asker, name, ask, in_flight, count // 2)
        for name, ask in (("get", asker.get), ("set", asker.set), ("echo", asker.echo_get))
        for in_flight in LATENCY_IN_FLIGHT
    ]


async def _latency(asker: Asker, operation: str, ask: Ask, in_flight: int, count: int) -> Latency:
    count = max(200, count // 10) if in_flight == 1 else count
    spent: list[float] = []
    start = time.perf_counter()
    await asker.many(ask, count, in_flight, spent)()
    speed = count / (time.perf_counter() - start)
    p50, p95, p99 = (percentile(spent, percent) * 1_000 for percent in (50, 95, 99))
    return Latency(operation, in_flight, p50, p95, p99, speed)
