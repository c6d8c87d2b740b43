"""Run the cases on one engine, each sized so that a round takes the time asked for."""

import platform
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from keyhouse import ManualClock, Store, SystemClock, UlidSource, sweep
from keyhouse.bench import cases
from keyhouse.bench.baseline import Baseline, EngineBaseline
from keyhouse.bench.baseline_sqlite import BareSqlite, SqliteBaseline
from keyhouse.bench.keyspace import NOTES, SCHEMA, WRITERS
from keyhouse.bench.result import Result
from keyhouse.bench.scratch import Scratch
from keyhouse.engine import Engine

CASES: Final = ("3", "4", "5", "8", "commit", "read")

SCANNED_MAX: Final = 10_000
_PUT_MAX: Final = 6_400
_READ_MAX: Final = 20_000
_SAMPLE: Final = 128
"""Records put before the first case, to learn how fast the engine is."""

OnProgress = Callable[[str], None]
OnResult = Callable[[Result], None]


class BenchReport(msgspec.Struct, frozen=True):
    """`skipped`: cases that cannot run on this engine, each with the reason."""

    engine_url: str
    location: str
    engine: str
    durable: bool
    machine: str
    python: str
    rounds: int
    results: list[Result]
    skipped: dict[str, str]


def skipped_cases(scratch: Scratch) -> dict[str, str]:
    """Return the cases that are not measured there, and why."""
    return {} if scratch.is_exclusive else {"8": "a sweep covers all spaces, including yours"}


async def run_cases(
    scratch: Scratch,
    names: Collection[str],
    *,
    rounds: int,
    seconds: float,
    on_progress: OnProgress,
    on_result: OnResult,
) -> BenchReport:
    """Run the named cases. `seconds` is about how long each workload takes per round."""
    skipped = {case: why for case, why in skipped_cases(scratch).items() if case in names}
    todo = [case for case in CASES if case in names and case not in skipped]
    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        on_result(result)

    async with scratch.open() as engine:
        capabilities = engine.capabilities
        if set(todo) - {"8"}:
            await _run_store_cases(scratch, engine, todo, rounds, seconds, on_progress, add)
    if "8" in todo:
        await _run_sweep(scratch, rounds, on_progress, add)
    return BenchReport(
        engine_url=scratch.engine_url,
        location=scratch.location,
        engine=capabilities.name,
        durable=capabilities.durable,
        machine=platform.platform(),
        python=platform.python_version(),
        rounds=rounds,
        results=sorted(results, key=lambda result: CASES.index(result.case)),
        skipped=skipped,
    )


async def _run_store_cases(
    scratch: Scratch,
    engine: Engine,
    todo: Collection[str],
    rounds: int,
    seconds: float,
    on_progress: OnProgress,
    add: OnResult,
) -> None:
    store, notes = Store(SCHEMA, engine, scratch.space), Store(NOTES, engine, scratch.space)
    ids = UlidSource(SystemClock())
    with _open_baseline(scratch, engine) as baseline:
        by_hand = isinstance(baseline, SqliteBaseline)  # goals are set against hand-written code
        on_progress("calibrating")
        artist = ids.new()
        values = cases.tracks(ids, artist, _SAMPLE)
        put_speed = _SAMPLE / await _seconds(cases.put_all(store, values))
        size = _size(put_speed, seconds, WRITERS, _PUT_MAX)
        await baseline.put(values)
        if "3" in todo:
            on_progress(f"3: {rounds} rounds of {size:,} puts each")
            goal = 0.50 if by_hand else None
            add(await cases.puts(store, baseline, ids, rounds=rounds, size=size, goal=goal))
        if {"4", "5"} & set(todo):
            more = cases.tracks(ids, artist, min(SCANNED_MAX, 4 * size) - _SAMPLE)
            on_progress(f"writing {len(more):,} records to read")
            await cases.put_all(store, more)
            await baseline.put(more)
            values += more
        if "4" in todo:
            names = [each.id for each in values]
            speed = 20 / await _seconds(cases.get_all(store, names[:20]))
            count = _size(speed, seconds, 20, _READ_MAX)
            asked = (names * (count // len(names) + 1))[:count]
            on_progress(f"4: {rounds} rounds of {count:,} gets each")
            goal = 0.60 if by_hand else None
            add(await cases.gets(store, baseline, asked, rounds=rounds, goal=goal))
        if "5" in todo:
            size = len(values)
            on_progress(f"5: {rounds} rounds of a scan of {size:,}")
            goal = 0.50 if by_hand else None
            add(await cases.scans(store, baseline, artist, rounds=rounds, size=size, goal=goal))
        if "commit" in todo:
            rows = [(f"note:first-{number}", b"1") for number in range(5)]
            size = _size(5 / await _seconds(baseline.commit(rows)), seconds, 5, _PUT_MAX)
            add(await cases.commits(notes, baseline, rounds=rounds, size=size))
        if "read" in todo:
            speed = 20 / await _seconds(baseline.read(["note:first-0"] * 20))
            size = _size(speed, seconds, 20, _READ_MAX)
            add(await cases.reads(notes, baseline, rounds=rounds, size=size))


async def _run_sweep(scratch: Scratch, rounds: int, on_progress: OnProgress, add: OnResult) -> None:
    clock = ManualClock()
    on_progress(f"8: {rounds} rounds of a sweep")
    async with scratch.open(clock) as engine:
        notes = Store(NOTES, engine, scratch.space)
        size = _size(500 / await _seconds(cases.fill(notes, 500, -1)), 2.0, 500, SCANNED_MAX)
        clock.advance(seconds=20)
        await sweep(engine)
        with _open_baseline(scratch, engine) as baseline:
            by_hand = baseline if isinstance(baseline, SqliteBaseline) else None
            add(await cases.sweeps(notes, clock, by_hand, rounds=rounds, size=size))


@contextmanager
def _open_baseline(scratch: Scratch, engine: Engine) -> Iterator[Baseline]:
    if not scratch.is_sqlite or scratch.folder is None:
        yield EngineBaseline(engine, scratch.baseline_space)
        return
    bare = BareSqlite(scratch.folder / "baseline.db")
    try:
        yield SqliteBaseline(bare)
    finally:
        bare.close()


def _size(speed: float, seconds: float, minimum: int, maximum: int) -> int:
    return int(min(maximum, max(minimum, speed * seconds)))


async def _seconds(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start
