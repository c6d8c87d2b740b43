"""Rows 4 and 5, the first with its peer: py-key-value-aio on disk."""

import asyncio
from pathlib import Path

from benchmarks import peers
from keyhouse import Store, SystemClock, UlidSource, open_engine
from keyhouse.bench import rows
from keyhouse.bench.figure import Figure
from keyhouse.bench.hand import Hand
from keyhouse.bench.library import SCHEMA, SPACE, TRACK, rows_by_hand
from keyhouse.bench.limit import ByHand


async def measure(folder: Path, rounds: int, size: int) -> list[Figure]:
    ids = UlidSource(SystemClock())
    artist = ids.new()
    values = rows.tracks(ids, artist, size)
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(SCHEMA, engine, SPACE)
    hand = Hand(folder / "hand.db")
    await asyncio.gather(*(store.put(TRACK, value) for value in values))
    hand.put(SPACE, [row for value in values for row in rows_by_hand(value)], 1)
    limit = ByHand(hand)
    async with peers.py_key_value(folder, values[:1_000]) as get:
        others = {} if get is None else {"peer": get}
        read = await rows.gets(
            store,
            limit,
            [value.id for value in values],
            rounds=rounds,
            goal=0.60,
            others=others,
            peer_goal=5,
            note=peers.note("py-key-value-aio on disk", "peer" in others),
        )
    scanned = await rows.scans(store, limit, artist, rounds=rounds, size=size, goal=0.50)
    await engine.close()
    hand.close()
    return [read, scanned]
