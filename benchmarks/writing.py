"""Row 3: a typed put with five derived rows, by 64 writers at once, each acknowledged when it is on disk.

The limit is SQLite by hand: the same six rows of each record, 64 records in each transaction, the same synchronous level. It
reads nothing, checks nothing, and keeps no log of changes. The peer is redis-om saving one hash, with no index at all, on a
Redis that syncs every write.
"""

import asyncio
from pathlib import Path

from benchmarks import peers
from benchmarks.contest import Contestant, contest
from benchmarks.figure import Figure
from benchmarks.hand import Hand
from benchmarks.library import SCHEMA, SPACE, TRACK, Track, rows_by_hand, track
from keyhouse import Store, SystemClock, UlidSource, open_engine

WRITERS = 64


async def measure(folder: Path, rounds: int, size: int) -> Figure:
    ids = UlidSource(SystemClock())
    artist = ids.new()
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(SCHEMA, engine, SPACE)
    hand = Hand(folder / "hand.db")
    made = iter([[track(ids.new(), number, artist) for number in range(size)] for _ in range(rounds * 3)])

    async def ours() -> int:
        values = iter(next(made))

        async def writer() -> None:
            for value in values:
                await store.put(TRACK, value)

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return size

    async def limit() -> int:
        values: list[Track] = next(made)
        for start in range(0, size, WRITERS):
            group = values[start : start + WRITERS]
            hand.put(SPACE, [row for value in group for row in rows_by_hand(value)], start + 1)
        return size

    contestants: dict[str, Contestant] = {"ours": ours, "limit": limit}
    async with peers.redis_om(folder) as save:
        if save is not None:
            contestants["peer"] = _peer(save, artist, size // 10)
        results = await contest(contestants, rounds=rounds)
    await engine.close()
    hand.close()
    return Figure(
        row="3",
        work=f"typed put, 5 derived rows, {WRITERS} writers",
        unit="records/s",
        results=list(results.values()),
        goal=0.50,
        peer_goal=2,
        note=peers.note("redis-om on Redis, appendfsync always", "peer" in contestants),
    )


def _peer(save: peers.Save, artist: str, size: int) -> Contestant:
    async def peer() -> int:
        values = iter(track("", number, artist) for number in range(size))

        async def writer() -> None:
            for value in values:
                await save(value)

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return size

    return peer
