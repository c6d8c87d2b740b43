"""The rows of the table that need a store alone: 3 (put), 4 (get), 5 (scan), 8 (sweep), and one row at a time (commit and
read).

Each takes the store, its limit, and whoever else takes part.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse import Record, Schema, Space, Store, UlidSource, per_write, sweep
from keyhouse.bench.contest import Contestant, Result, contest
from keyhouse.bench.figure import Figure
from keyhouse.bench.library import BY_ARTIST, TRACK, Track, track
from keyhouse.bench.limit import WRITERS, ByHand, Limit
from keyhouse.clock import ManualClock

NOBODY: Final[Mapping[str, Contestant]] = {}

NOTE: Record[Any] = Record(Any, "note:{name}", name="note", expiry=per_write())
NOTES = Schema("notes", NOTE, space=Space("a plugin"))
TEXT: Final = {"text": "x" * 100}


def tracks(ids: UlidSource, artist: str, size: int) -> list[Track]:
    return [track(ids.new(), number, artist) for number in range(size)]


async def put_all(store: Store, values: Sequence[Track]) -> int:
    """By 64 writers, each of which waits for its answer before it writes again."""
    left = iter(values)

    async def writer() -> None:
        for value in left:
            await store.put(TRACK, value)

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return len(values)


async def got(store: Store, ids: Sequence[str]) -> int:
    for id in ids:
        await store.get(TRACK, id=id)
    return len(ids)


async def puts(
    store: Store,
    limit: Limit,
    ids: UlidSource,
    *,
    rounds: int,
    size: int,
    goal: float | None,
    others: Mapping[str, Contestant] = NOBODY,
    **more: Any,
) -> Figure:
    artist = ids.new()
    made = iter([tracks(ids, artist, size) for _ in range(2 * rounds)])

    async def ours() -> int:
        return await put_all(store, next(made))

    async def by_limit() -> int:
        await limit.put(next(made))
        return size

    results = await contest({"ours": ours, "limit": by_limit, **others}, rounds=rounds)
    work = f"typed put, 5 derived rows, {WRITERS} writers"
    return _figure("3", work, "records/s", results, limit, goal, **more)


async def gets(
    store: Store,
    limit: Limit,
    ids: Sequence[str],
    *,
    rounds: int,
    goal: float | None,
    others: Mapping[str, Contestant] = NOBODY,
    **more: Any,
) -> Figure:
    async def ours() -> int:
        return await got(store, ids)

    async def by_limit() -> int:
        await limit.get(ids)
        return len(ids)

    results = await contest({"ours": ours, "limit": by_limit, **others}, rounds=rounds)
    return _figure("4", "typed get", "records/s", results, limit, goal, **more)


async def scans(
    store: Store, limit: Limit, artist: str, *, rounds: int, size: int, goal: float | None
) -> Figure:
    async def ours() -> int:
        return len([entry async for entry in store.scan(TRACK, by=BY_ARTIST, artist_id=artist)])

    async def by_limit() -> int:
        return await limit.scan(artist)

    results = await contest({"ours": ours, "limit": by_limit}, rounds=rounds)
    return _figure("5", f"scan of {size:,} records by an index", "records/s", results, limit, goal)


async def commits(notes: Store, limit: Limit, *, rounds: int, size: int) -> Figure:
    value, turn = msgspec.json.encode(TEXT), iter(range(10**9))

    async def ours() -> int:
        for _ in range(size):
            await notes.put(NOTE, TEXT, name=f"{next(turn)}")
        return size

    async def by_limit() -> int:
        await limit.commit([(f"note:{next(turn)}", value) for _ in range(size)])
        return size

    results = await contest({"ours": ours, "limit": by_limit}, rounds=rounds)
    return _figure("commit", "one row, 1 writer", "commits/s", results, limit, None)


async def reads(notes: Store, limit: Limit, *, rounds: int, size: int) -> Figure:
    await notes.put(NOTE, TEXT, name="read")
    await limit.commit([("note:read", msgspec.json.encode(TEXT))])

    async def ours() -> int:
        for _ in range(size):
            await notes.row("note:read")
        return size

    async def by_limit() -> int:
        await limit.read(["note:read"] * size)
        return size

    results = await contest({"ours": ours, "limit": by_limit}, rounds=rounds)
    return _figure("read", "one row, 1 reader", "reads/s", results, limit, None)


async def sweeps(
    notes: Store, clock: ManualClock, hand: ByHand | None, *, rounds: int, size: int, row: str = "8"
) -> Figure:
    """A sweep is of all spaces, so the engine must hold nothing but this. Without a hand, there is nothing beside it: no
    engine can be asked to sweep in another way."""
    spent: dict[str, list[float]] = {"ours": [], "limit": []}
    for turn in range(rounds):
        await fill(notes, size, turn)
        clock.advance(seconds=20)
        start = time.perf_counter()
        assert await sweep(notes.engine) == size
        spent["ours"].append(size / (time.perf_counter() - start))
        if hand is not None:
            spent["limit"].append(hand.sweep(turn, size))
    results = {
        name: Result(name, sorted(found)[len(found) // 2], found)
        for name, found in spent.items()
        if found
    }
    goal = None if hand is None else 0.30
    return _figure(row, f"sweep of {size:,} expired rows", "rows/s", results, hand, goal)


async def fill(notes: Store, size: int, turn: int) -> None:
    for start in range(0, size, 500):
        numbers = range(start, min(size, start + 500))
        await asyncio.gather(
            *(notes.put(NOTE, TEXT, name=f"{turn}-{number}", ttl=10) for number in numbers)
        )


def _figure(
    row: str,
    work: str,
    unit: str,
    results: Mapping[str, Result],
    limit: Limit | None,
    goal: float | None,
    **more: Any,
) -> Figure:
    against = limit.name if limit is not None else ""
    return Figure(
        row=row,
        work=work,
        unit=unit,
        results=list(results.values()),
        goal=goal,
        against=against,
        **more,
    )
