"""Row 3 with its peer: redis-om saving one hash, with no index at all, on a Redis that syncs every write."""

import asyncio
from pathlib import Path

from benchmarks import peers
from keyhouse import Store, SystemClock, UlidSource, open_engine
from keyhouse.bench import rows
from keyhouse.bench.contest import Contestant
from keyhouse.bench.figure import Figure
from keyhouse.bench.hand import Hand
from keyhouse.bench.library import SCHEMA, SPACE, track
from keyhouse.bench.limit import WRITERS, ByHand


async def measure(folder: Path, rounds: int, size: int) -> Figure:
    ids = UlidSource(SystemClock())
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    hand = Hand(folder / "hand.db")
    async with peers.redis_om(folder) as save:
        others = {} if save is None else {"peer": _peer(save, ids.new(), size // 10)}
        figure = await rows.puts(
            Store(SCHEMA, engine, SPACE),
            ByHand(hand),
            ids,
            rounds=rounds,
            size=size,
            goal=0.50,
            others=others,
            peer_goal=2,
            note=peers.note("redis-om on Redis, appendfsync always", "peer" in others),
        )
    await engine.close()
    hand.close()
    return figure


def _peer(save: peers.Save, artist: str, size: int) -> Contestant:
    async def peer() -> int:
        values = iter(track("", number, artist) for number in range(size))

        async def writer() -> None:
            for value in values:
                await save(value)

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return size

    return peer
