"""Rows 4 and 5: a typed get, and a scan of records by an index, each against the same SELECT and decoding by hand."""

import asyncio
from pathlib import Path

import msgspec

from benchmarks import peers
from benchmarks.contest import Contestant, contest
from benchmarks.figure import Figure
from benchmarks.hand import GET, RANGE, Hand
from benchmarks.library import BY_ARTIST, SCHEMA, SPACE, TRACK, Track, rows_by_hand, track
from keyhouse import Store, SystemClock, UlidSource, open_engine


async def measure(folder: Path, rounds: int, size: int) -> list[Figure]:
    ids = UlidSource(SystemClock())
    artist = ids.new()
    values = [track(ids.new(), number, artist) for number in range(size)]
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(SCHEMA, engine, SPACE)
    hand = Hand(folder / "hand.db")
    await asyncio.gather(*(store.put(TRACK, value) for value in values))
    hand.put(SPACE, [row for value in values for row in rows_by_hand(value)], 1)
    figures = [
        await _gets(folder, store, hand, values, rounds),
        await _scans(store, hand, artist, rounds, size),
    ]
    await engine.close()
    hand.close()
    return figures


async def _gets(folder: Path, store: Store, hand: Hand, values: list[Track], rounds: int) -> Figure:
    names = [value.id for value in values]
    decode = msgspec.json.Decoder(Track).decode
    execute = hand.connection.execute

    async def ours() -> int:
        for name in names:
            await store.get(TRACK, id=name)
        return len(names)

    async def limit() -> int:
        for name in names:
            decode(execute(GET, (SPACE, f"t:{name}")).get)
        return len(names)

    contestants: dict[str, Contestant] = {"ours": ours, "limit": limit}
    async with peers.py_key_value(folder, values[:1_000]) as get:
        if get is not None:
            contestants["peer"] = get
        results = await contest(contestants, rounds=rounds)
    return Figure(
        row="4",
        work="typed get",
        unit="records/s",
        results=list(results.values()),
        goal=0.60,
        peer_goal=5,
        note=peers.note("py-key-value-aio on disk", "peer" in contestants),
    )


async def _scans(store: Store, hand: Hand, artist: str, rounds: int, size: int) -> Figure:
    decode = msgspec.json.Decoder(Track).decode
    execute = hand.connection.execute
    prefix = f"idx:track:artist:{artist}:"

    async def ours() -> int:
        return len([entry async for entry in store.scan(TRACK, by=BY_ARTIST, artist_id=artist)])

    async def limit() -> int:
        keys = execute(RANGE, (SPACE, prefix, prefix[:-1] + ";")).fetchall()
        return len([decode(execute(GET, (SPACE, "t:" + str(key)[len(prefix) :])).get) for (key,) in keys])

    results = await contest({"ours": ours, "limit": limit}, rounds=rounds)
    return Figure(
        row="5",
        work=f"scan of {size:,} records by an index",
        unit="records/s",
        results=list(results.values()),
        goal=0.50,
    )
