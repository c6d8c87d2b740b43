"""The table on one engine: which rows make sense there, how large each is so that a round takes its time, and all of
them."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from keyhouse import ManualClock, Store, SystemClock, UlidSource, sweep
from keyhouse.bench import rows
from keyhouse.bench.figure import Figure
from keyhouse.bench.hand import Hand
from keyhouse.bench.library import SCHEMA
from keyhouse.bench.limit import WRITERS, ByHand, EngineAlone, Limit
from keyhouse.bench.scratch import Scratch
from keyhouse.engine import Engine

ROWS: Final = ("1", "2", "3", "4", "5", "6", "8", "commit", "read")
_SERVED: Final = ("1", "2", "6")
_STORED: Final = ("3", "4", "5", "commit", "read")

SCANNED_MAX: Final = 10_000
_PUT_MAX: Final = 6_400
_READ_MAX: Final = 20_000
_FIRST: Final = 128
"""Records that are put before, to see how fast the engine is."""

Say = Callable[[str], None]
Show = Callable[[Figure], None]


class Benched(msgspec.Struct, frozen=True):
    """`left_out`: rows that make no sense here, each with the reason."""

    place: str
    where: str
    engine: str
    durable: bool
    machine: str
    python: str
    rounds: int
    figures: list[Figure]
    left_out: dict[str, str]


def left_out(place: Scratch) -> dict[str, str]:
    """The rows that are not measured there, and why."""
    why: dict[str, str] = {}
    if place.folder is None or not place.is_sqlite:
        why |= dict.fromkeys(_SERVED, "it is measured on SQLite, where the service runs beside it")
    elif find_spec("uvicorn") is None or find_spec("nats") is None:
        why |= dict.fromkeys(_SERVED, "it needs the extra serve: pip install 'keyhouse[serve]'")
    if not place.is_alone:
        why["8"] = "a sweep is of all spaces, and others have theirs here"
    return why


async def measure(
    place: Scratch, wanted: Collection[str], *, rounds: int, seconds: float, say: Say, show: Show
) -> Benched:
    """`seconds`: how long each contestant works in each round, about. A figure is shown as soon as there is one."""
    missing = {row: why for row, why in left_out(place).items() if row in wanted}
    todo = [row for row in ROWS if row in wanted and row not in missing]
    figures: list[Figure] = []

    def found(figure: Figure) -> None:
        figures.append(figure)
        show(figure)

    async with place.opened() as engine:
        can = engine.capabilities
        if set(todo) & set(_STORED):
            await _stored(place, engine, todo, rounds, seconds, say, found)
    if "8" in todo:
        await _swept(place, rounds, say, found)
    if place.folder is not None and set(todo) & set(_SERVED):
        await _served(place.folder, todo, rounds, seconds, say, found)
    in_order = sorted(figures, key=lambda figure: ROWS.index(figure.row))
    machine, python = platform.platform(), platform.python_version()
    return Benched(
        place.place, place.where, can.name, can.durable, machine, python, rounds, in_order, missing
    )


async def _stored(
    place: Scratch,
    engine: Engine,
    todo: Collection[str],
    rounds: int,
    seconds: float,
    say: Say,
    found: Show,
) -> None:
    store, notes = Store(SCHEMA, engine, place.space), Store(rows.NOTES, engine, place.space)
    ids = UlidSource(SystemClock())
    with _limit(place, engine) as limit:
        goal = isinstance(limit, ByHand)  # the limit that goals are set against
        say("how fast is it?")
        artist = ids.new()
        first = rows.tracks(ids, artist, _FIRST)
        size = _size(_FIRST / await _taken(rows.put_all(store, first)), seconds, WRITERS, _PUT_MAX)
        await limit.put(first)
        if "3" in todo:
            say(f"3: {rounds} rounds of {size:,} puts each")
            found(
                await rows.puts(
                    store, limit, ids, rounds=rounds, size=size, goal=0.50 if goal else None
                )
            )
        if {"4", "5"} & set(todo):
            more = rows.tracks(ids, artist, min(SCANNED_MAX, 4 * size) - _FIRST)
            say(f"{len(more):,} records to read")
            await rows.put_all(store, more)
            await limit.put(more)
            first += more
        if "4" in todo:
            names = [each.id for each in first]
            speed = 20 / await _taken(rows.got(store, names[:20]))
            count = _size(speed, seconds, 20, _READ_MAX)
            asked = (names * (count // len(names) + 1))[:count]
            say(f"4: {rounds} rounds of {count:,} gets each")
            found(await rows.gets(store, limit, asked, rounds=rounds, goal=0.60 if goal else None))
        if "5" in todo:
            say(f"5: {rounds} rounds of a scan of {len(first):,}")
            found(
                await rows.scans(
                    store,
                    limit,
                    artist,
                    rounds=rounds,
                    size=len(first),
                    goal=0.50 if goal else None,
                )
            )
        if "commit" in todo:
            speed = 5 / await _taken(
                limit.commit([(f"note:first-{number}", b"1") for number in range(5)])
            )
            found(
                await rows.commits(
                    notes, limit, rounds=rounds, size=_size(speed, seconds, 5, _PUT_MAX)
                )
            )
        if "read" in todo:
            speed = 20 / await _taken(limit.read(["note:first-0"] * 20))
            found(
                await rows.reads(
                    notes, limit, rounds=rounds, size=_size(speed, seconds, 20, _READ_MAX)
                )
            )


async def _swept(place: Scratch, rounds: int, say: Say, found: Show) -> None:
    clock = ManualClock()
    say(f"8: {rounds} rounds of a sweep")
    async with place.opened(clock) as engine:
        notes = Store(rows.NOTES, engine, place.space)
        start = time.perf_counter()
        await rows.fill(notes, 500, -1)
        size = _size(500 / (time.perf_counter() - start), 2.0, 500, SCANNED_MAX)
        clock.advance(seconds=20)
        await sweep(engine)
        with _limit(place, engine) as limit:
            hand = limit if isinstance(limit, ByHand) else None
            found(await rows.sweeps(notes, clock, hand, rounds=rounds, size=size))


async def _served(
    folder: Path, todo: Collection[str], rounds: int, seconds: float, say: Say, found: Show
) -> None:
    """Rows 1, 2 and 6: processes of their own, on SQLite in the folder."""
    from keyhouse.bench import http, plugin

    if {"1", "2"} & set(todo):
        say("1 and 2: a NATS server, an echo and the service start")
        async with plugin.asking(folder) as asker:
            speed = 256 / await _taken(asker.many(asker.echo_get, 256)())
            count = _size(speed, seconds, 256, 10_000)
            for row, of in (("1", plugin.gets), ("2", plugin.sets)):
                if row in todo:
                    say(f"{row}: {rounds} rounds of {count:,} requests each")
                    found(await of(asker, rounds=rounds, count=count))
    if "6" in todo:
        say(f"6: {rounds} rounds of HTTP requests")
        found(
            await asyncio.to_thread(
                http.measure, folder / "http", rounds, _size(10_000, seconds, 1_000, 20_000)
            )
        )


@contextmanager
def _limit(place: Scratch, engine: Engine) -> Iterator[Limit]:
    if not place.is_sqlite or place.folder is None:
        yield EngineAlone(engine, place.limit_space)
        return
    hand = Hand(place.folder / "hand.db")
    try:
        yield ByHand(hand)
    finally:
        hand.close()


def _size(speed: float, seconds: float, least: int, most: int) -> int:
    return int(min(most, max(least, speed * seconds)))


async def _taken(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start
