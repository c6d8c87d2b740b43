"""Cost of a plugin's `get` and `list` over NATS, and memory, from 1,000 keys to a million.

It serves the files that `benchmarks.growth` made in the table of plugin storage.
"""

import json
import random
import statistics
from pathlib import Path

import msgspec

from benchmarks.growth import memory_of
from benchmarks.services.nats import PluginClient, plugin_client
from keyhouse.bench.comparison import calibrate, percentile

ROUNDS = 3
GETS = 2_000
LISTS = 40


class ServiceSize(msgspec.Struct):
    keys: int
    get_ms: float
    list_ms: float
    memory_mb: float


async def measure(folder: Path, sizes: tuple[int, ...]) -> list[ServiceSize]:
    """Restart the service for each size in every round, in turns; return medians."""
    rounds: dict[int, list[ServiceSize]] = {size: [] for size in sizes}
    for turn in range(ROUNDS):
        for size in sizes:
            data = folder / f"served-{size}-{turn}"
            data.mkdir()
            url = f"sqlite:{folder}/size-{size}.db?layout=rosey"
            async with plugin_client(data, url) as client:
                calibrate()
                rounds[size].append(await _measure_size(client, size))
    return [
        ServiceSize(
            size,
            *(
                statistics.median(getattr(each, name) for each in sizes_of_round)
                for name in ServiceSize.__struct_fields__[1:]
            ),
        )
        for size, sizes_of_round in rounds.items()
    ]


async def _measure_size(client: PluginClient, size: int) -> ServiceSize:
    draw = random.Random(size)

    async def get(_: int) -> None:
        body = json.dumps({"key": f"item:{draw.randrange(size):08d}"}).encode()
        reply = await client.client.request("db.kv.bench.get", body, timeout=30)
        assert reply.data.startswith(b'{"success":true,"exists":true'), reply.data

    async def page(_: int) -> None:
        first = f"item:{draw.randrange(max(1, size // 1_000)):05d}"
        reply = await client.client.request(
            "db.kv.bench.list", json.dumps({"prefix": first}).encode(), timeout=30
        )
        assert b'"count":1000' in reply.data[-60:], reply.data[-60:]

    get_latencies: list[float] = []
    list_latencies: list[float] = []
    await client.workload(get, GETS, 1)()
    await client.workload(get, GETS, 1, get_latencies)()
    await client.workload(page, LISTS, 1, list_latencies)()
    return ServiceSize(
        size,
        percentile(get_latencies, 50) * 1e3,
        percentile(list_latencies, 50) * 1e3,
        memory_of(client.service_pid),
    )
