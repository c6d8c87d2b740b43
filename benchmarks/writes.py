"""Case 3. Its peer: redis-om saves one hash without an index, on a Redis that syncs each write."""

import asyncio
from pathlib import Path

from benchmarks import peers
from keyhouse import Store, SystemClock, UlidSource, open_engine
from keyhouse.bench import cases
from keyhouse.bench.baseline_sqlite import BareSqlite, SqliteBaseline
from keyhouse.bench.comparison import Workload
from keyhouse.bench.keyspace import SCHEMA, SPACE, WRITERS, track
from keyhouse.bench.result import Result


async def measure(folder: Path, rounds: int, size: int) -> Result:
    ids = UlidSource(SystemClock())
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    bare = BareSqlite(folder / "baseline.db")
    async with peers.redis_om(folder) as save:
        peer = {} if save is None else {"peer": _workload(save, ids.new(), size // 10)}
        result = await cases.puts(
            Store(SCHEMA, engine, SPACE),
            SqliteBaseline(bare),
            ids,
            rounds=rounds,
            size=size,
            goal=0.55,
            peers=peer,
            peer_goal=2.5,
            note=peers.note("redis-om on Redis, appendfsync always", "peer" in peer),
        )
    await engine.close()
    bare.close()
    return result


def _workload(save: peers.Save, artist: str, size: int) -> Workload:
    async def peer() -> int:
        values = iter(track("", number, artist) for number in range(size))

        async def writer() -> None:
            for value in values:
                await save(value)

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return size

    return peer
