"""The cases: 3 (put), 4 (get), 5 (scan), 8 (sweep), and one row at a time (commit, read).

Each takes the store, its baseline and, from `make bench`, the workloads of peers.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse import Store, UlidSource, sweep
from keyhouse.bench.baseline import Baseline
from keyhouse.bench.baseline_sqlite import SqliteBaseline
from keyhouse.bench.comparison import Measurement, Workload, compare
from keyhouse.bench.keyspace import BY_ARTIST, NOTE, NOTE_VALUE, TRACK, WRITERS, Track, track
from keyhouse.bench.result import Result
from keyhouse.clock import ManualClock

NO_PEERS: Final[Mapping[str, Workload]] = {}


def tracks(ids: UlidSource, artist: str, size: int) -> list[Track]:
    return [track(ids.new(), number, artist) for number in range(size)]


async def put_all(store: Store, values: Sequence[Track]) -> int:
    """Write with 64 writers, each of which waits for its commit before the next put."""
    pending = iter(values)

    async def writer() -> None:
        for value in pending:
            await store.put(TRACK, value)

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return len(values)


async def get_all(store: Store, ids: Sequence[str]) -> int:
    for id in ids:
        await store.get(TRACK, id=id)
    return len(ids)


async def puts(
    store: Store,
    baseline: Baseline,
    ids: UlidSource,
    *,
    rounds: int,
    size: int,
    goal: float | None,
    peers: Mapping[str, Workload] = NO_PEERS,
    **more: Any,
) -> Result:
    artist = ids.new()
    values = iter([tracks(ids, artist, size) for _ in range(2 * rounds)])

    async def ours() -> int:
        return await put_all(store, next(values))

    async def by_baseline() -> int:
        await baseline.put(next(values))
        return size

    measured = await compare({"ours": ours, "baseline": by_baseline, **peers}, rounds=rounds)
    work = f"typed put, 5 derived rows, {WRITERS} writers"
    return _result("3", work, "records/s", measured, baseline, goal, **more)


async def gets(
    store: Store,
    baseline: Baseline,
    ids: Sequence[str],
    *,
    rounds: int,
    goal: float | None,
    peers: Mapping[str, Workload] = NO_PEERS,
    **more: Any,
) -> Result:
    async def ours() -> int:
        return await get_all(store, ids)

    async def by_baseline() -> int:
        await baseline.get(ids)
        return len(ids)

    measured = await compare({"ours": ours, "baseline": by_baseline, **peers}, rounds=rounds)
    return _result("4", "typed get", "records/s", measured, baseline, goal, **more)


async def scans(
    store: Store, baseline: Baseline, artist: str, *, rounds: int, size: int, goal: float | None
) -> Result:
    async def ours() -> int:
        return len([entry async for entry in store.scan(TRACK, by=BY_ARTIST, artist_id=artist)])

    async def by_baseline() -> int:
        return await baseline.scan(artist)

    measured = await compare({"ours": ours, "baseline": by_baseline}, rounds=rounds)
    work = f"scan of {size:,} records by an index"
    return _result("5", work, "records/s", measured, baseline, goal)


async def commits(notes: Store, baseline: Baseline, *, rounds: int, size: int) -> Result:
    value, numbers = msgspec.json.encode(NOTE_VALUE), iter(range(10**9))

    async def ours() -> int:
        for _ in range(size):
            await notes.put(NOTE, NOTE_VALUE, name=f"{next(numbers)}")
        return size

    async def by_baseline() -> int:
        await baseline.commit([(f"note:{next(numbers)}", value) for _ in range(size)])
        return size

    measured = await compare({"ours": ours, "baseline": by_baseline}, rounds=rounds)
    return _result("commit", "one row, 1 writer", "commits/s", measured, baseline, None)


async def reads(notes: Store, baseline: Baseline, *, rounds: int, size: int) -> Result:
    await notes.put(NOTE, NOTE_VALUE, name="read")
    await baseline.commit([("note:read", msgspec.json.encode(NOTE_VALUE))])

    async def ours() -> int:
        for _ in range(size):
            await notes.row("note:read")
        return size

    async def by_baseline() -> int:
        await baseline.read(["note:read"] * size)
        return size

    measured = await compare({"ours": ours, "baseline": by_baseline}, rounds=rounds)
    return _result("read", "one row, 1 reader", "reads/s", measured, baseline, None)


async def sweeps(
    notes: Store,
    clock: ManualClock,
    baseline: SqliteBaseline | None,
    *,
    rounds: int,
    size: int,
    case: str = "8",
) -> Result:
    """Sweep the whole engine, which must hold nothing else. Only SQLite has a baseline: the other
    engines have no second way to sweep."""
    speeds: dict[str, list[float]] = {"ours": [], "baseline": []}
    for turn in range(rounds):
        await fill(notes, size, turn)
        clock.advance(seconds=20)
        start = time.perf_counter()
        assert await sweep(notes.engine) == size
        speeds["ours"].append(size / (time.perf_counter() - start))
        if baseline is not None:
            speeds["baseline"].append(baseline.sweep(turn, size))
    measured = {
        name: Measurement(name, sorted(each)[len(each) // 2], each)
        for name, each in speeds.items()
        if each
    }
    goal = None if baseline is None else 0.30
    return _result(case, f"sweep of {size:,} expired rows", "rows/s", measured, baseline, goal)


async def fill(notes: Store, size: int, turn: int) -> None:
    for start in range(0, size, 500):
        numbers = range(start, min(size, start + 500))
        await asyncio.gather(
            *(notes.put(NOTE, NOTE_VALUE, name=f"{turn}-{number}", ttl=10) for number in numbers)
        )


def _result(
    case: str,
    work: str,
    unit: str,
    measured: Mapping[str, Measurement],
    baseline: Baseline | None,
    goal: float | None,
    **more: Any,
) -> Result:
    return Result(
        case=case,
        work=work,
        unit=unit,
        measurements=list(measured.values()),
        goal=goal,
        baseline=baseline.name if baseline is not None else "",
        **more,
    )
