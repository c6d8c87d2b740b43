"""How a plugin's own requests grow from a thousand keys to a million: `get` and `list` over NATS, one at a time, and the
memory of the service. It serves the files that `benchmarks.growth` has made in the table of plugin storage."""

import json
import random
import statistics
from pathlib import Path

import msgspec

from benchmarks.growth import memory_of
from keyhouse.bench.contest import calibrate, percentile
from keyhouse.bench.plugin import Asker, asking

ROUNDS = 3
GETS = 2_000
LISTS = 40


class Served(msgspec.Struct):
    keys: int
    get_ms: float
    list_ms: float
    memory_mb: float


async def measure(folder: Path, sizes: tuple[int, ...]) -> list[Served]:
    """Each size anew in every round, in turns; the medians."""
    rounds: dict[int, list[Served]] = {size: [] for size in sizes}
    for turn in range(ROUNDS):
        for size in sizes:
            place = folder / f"served-{size}-{turn}"
            place.mkdir()
            async with asking(place, f"sqlite:{folder}/grown-{size}.db?layout=rosey") as asker:
                calibrate()
                rounds[size].append(await _asked(asker, size))
    return [
        Served(
            size,
            *(
                statistics.median(getattr(each, name) for each in found)
                for name in Served.__struct_fields__[1:]
            ),
        )
        for size, found in rounds.items()
    ]


async def _asked(asker: Asker, size: int) -> Served:
    draw = random.Random(size)

    async def get(_: int) -> None:
        body = json.dumps({"key": f"item:{draw.randrange(size):08d}"}).encode()
        answer = await asker.client.request("db.kv.bench.get", body, timeout=30)
        assert answer.data.startswith(b'{"success":true,"exists":true'), answer.data

    async def page(_: int) -> None:
        first = f"item:{draw.randrange(max(1, size // 1_000)):05d}"
        answer = await asker.client.request(
            "db.kv.bench.list", json.dumps({"prefix": first}).encode(), timeout=30
        )
        assert b'"count":1000' in answer.data[-60:], answer.data[-60:]

    spent_on_gets: list[float] = []
    spent_on_lists: list[float] = []
    await asker.many(get, GETS, 1)()
    await asker.many(get, GETS, 1, spent_on_gets)()
    await asker.many(page, LISTS, 1, spent_on_lists)()
    return Served(
        size,
        percentile(spent_on_gets, 50) * 1e3,
        percentile(spent_on_lists, 50) * 1e3,
        memory_of(asker.service),
    )
