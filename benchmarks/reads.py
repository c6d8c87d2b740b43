"""Cases 4 and 5; the peer of case 4 is py-key-value-aio on disk."""

import asyncio
from pathlib import Path

from benchmarks import peers
from keyhouse import Store, SystemClock, UlidSource, open_engine
from keyhouse.bench import cases
from keyhouse.bench.baseline_sqlite import BareSqlite, SqliteBaseline
from keyhouse.bench.keyspace import SCHEMA, SPACE, TRACK, rows_by_hand
from keyhouse.bench.result import Result


async def measure(folder: Path, rounds: int, size: int) -> list[Result]:
    ids = UlidSource(SystemClock())
    artist = ids.new()
    values = cases.tracks(ids, artist, size)
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(SCHEMA, engine, SPACE)
    bare = BareSqlite(folder / "baseline.db")
    await asyncio.gather(*(store.put(TRACK, value) for value in values))
    bare.put(SPACE, [row for value in values for row in rows_by_hand(value)], 1)
    baseline = SqliteBaseline(bare)
    async with peers.py_key_value(folder, values[:1_000]) as get:
        peer = {} if get is None else {"peer": get}
        get_result = await cases.gets(
            store,
            baseline,
            [value.id for value in values],
            rounds=rounds,
            goal=0.75,
            peers=peer,
            peer_goal=5,
            note=peers.note("py-key-value-aio on disk", "peer" in peer),
        )
    scan_result = await cases.scans(store, baseline, artist, rounds=rounds, size=size, goal=0.75)
    await engine.close()
    bare.close()
    return [get_result, scan_result]
