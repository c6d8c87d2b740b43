"""Cases 1, 2 and 2b, and latencies. Their peer: JetStream KV on the same server, always synced."""

import json
import time
from pathlib import Path

import msgspec
from nats.js.api import StorageType

from benchmarks.services.nats import KEYS, VALUE, PluginClient, Request, gets, plugin_client, sets
from keyhouse.bench.comparison import percentile
from keyhouse.bench.result import Result

LATENCY_IN_FLIGHT = (1, 10, 64, 256)


class Latency(msgspec.Struct):
    """Milliseconds."""

    operation: str
    in_flight: int
    p50: float
    p95: float
    p99: float
    per_second: float


async def measure(folder: Path, rounds: int, *, quick: bool) -> tuple[list[Result], list[Latency]]:
    """Measure cases 1 and 2, and the latencies of their requests."""
    async with plugin_client(folder) as client:
        count = 2_000 if quick else 10_000
        results = await _measure(client, ("1", 1.0), ("2", 0.75), rounds, count)
        return results, [
            await _latency(client, name, request, in_flight, count // 2)
            for name, request in (
                ("get", client.get),
                ("set", client.set),
                ("echo", client.echo_get),
            )
            for in_flight in LATENCY_IN_FLIGHT
        ]


async def measure_ten(folder: Path, rounds: int, *, quick: bool) -> list[Result]:
    """Measure case 2b: the same requests of ten plugins in turn."""
    async with plugin_client(folder, plugins=10) as client:
        count = 2_000 if quick else 10_000
        return await _measure(client, ("2b", 0.95), ("2b", 0.70), rounds, count)


async def _measure(
    client: PluginClient,
    for_get: tuple[str, float],
    for_set: tuple[str, float],
    rounds: int,
    count: int,
) -> list[Result]:
    """Measure `get` and `set`; for each, its case and goal are given."""
    kv = await client.client.jetstream().create_key_value(bucket="peer", storage=StorageType.FILE)
    data = json.dumps(VALUE).encode()

    async def put(number: int) -> None:
        await kv.put(f"game_{number % KEYS}", data)

    async def get(number: int) -> None:
        await kv.get(f"game_{number % KEYS}")

    await client.workload(put, KEYS)()
    return [
        await gets(
            client,
            case=for_get[0],
            goal=for_get[1],
            rounds=rounds,
            count=count,
            peers={"peer": client.workload(get, count // 4)},
            peer_goal=2,
            note="baseline: an echo; peer: JetStream KV get",
        ),
        await sets(
            client,
            case=for_set[0],
            goal=for_set[1],
            rounds=rounds,
            count=count,
            peers={"peer": client.workload(put, count // 10)},
            peer_goal=4,
            note="baseline: an echo, which writes nothing; peer: JetStream KV put, synced always",
        ),
    ]


async def _latency(
    client: PluginClient, operation: str, request: Request, in_flight: int, count: int
) -> Latency:
    count = max(200, count // 10) if in_flight == 1 else count
    latencies: list[float] = []
    start = time.perf_counter()
    await client.workload(request, count, in_flight, latencies)()
    speed = count / (time.perf_counter() - start)
    p50, p95, p99 = (percentile(latencies, percent) * 1_000 for percent in (50, 95, 99))
    return Latency(operation, in_flight, p50, p95, p99, speed)
