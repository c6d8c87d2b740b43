"""The contests of `keyhouse bench`: the store, and the engine alone, write and read the same rows, in turns.

The engine alone is the limit here: what the same rows cost through the contract, with no schema above it. What the engine
itself costs over its driver is measured by `make bench`, which has the drivers at hand.
"""

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from keyhouse import Store
from keyhouse.cli.output import Part, Report
from keyhouse.engine import Batch, Check, Engine, Put, Span
from keyhouse.schema import Index, Record, Schema, Space, Unique

ROUNDS: Final = 5
WRITERS: Final = 64
SCANNED: Final = 1_000
_BAR: Final = 30


class Item(msgspec.Struct):
    id: str
    name: str
    group: str
    number: int
    tags: list[str] = []


BY_NUMBER = Index("number:{number:08d}:{id}")
ITEM = Record(
    Item,
    "item:{id}",
    BY_NUMBER,
    Index("group:{group}:{id}"),
    Index("tag:{tag}:{id}", each={"tag": "tags"}),
    Unique("name:{name}", value="id"),
)
SCHEMA = Schema("bench", ITEM, space=Space("a bench"))
"""With two tags, an item has five derived rows."""


class Speed(msgspec.Struct, frozen=True):
    """Operations in a second, the median of the rounds; and how long one took, in milliseconds."""

    per_second: float
    p50_ms: float
    p99_ms: float


class Contest(msgspec.Struct, frozen=True):
    work: str
    store: Speed
    engine: Speed

    @property
    def ratio(self) -> float:
        return self.store.per_second / self.engine.per_second


class Benched(msgspec.Struct, frozen=True):
    place: str
    engine: str
    durable: bool
    rounds: int
    contests: list[Contest]


Work = Callable[[], Awaitable[int]]
"""One operation, or one that counts for several; how many it was."""


async def measure(engine: Engine, place: str, seconds: float, say: Callable[[str], None]) -> Benched:
    space = f"keyhouse-bench-{secrets.token_hex(8)}"
    try:
        contests = [await _contest(*each, seconds, say) for each in await _contests(engine, space)]
    finally:
        await asyncio.shield(_empty(engine, space))
    return Benched(place, engine.capabilities.name, engine.capabilities.durable, ROUNDS, contests)


async def _contests(engine: Engine, space: str) -> list[tuple[str, int, Work, Work]]:
    """Each with the number of tasks that are at it together."""
    store = Store(SCHEMA, engine, space)
    numbers = iter(range(SCANNED, 10**8))
    for number in range(SCANNED):
        await store.put(ITEM, _item(number))

    async def put() -> int:
        await store.put(ITEM, _item(next(numbers)))
        return 1

    async def commit() -> int:
        await engine.commit(space, _batch(_item(next(numbers))))
        return 1

    async def get() -> int:
        await store.get(ITEM, id=f"{next(numbers) % SCANNED:08d}")
        return 1

    async def read() -> int:
        await engine.read(space, (f"item:{next(numbers) % SCANNED:08d}",))
        return 1

    async def scan() -> int:
        page = await store.page(ITEM, by=BY_NUMBER, limit=SCANNED)
        return len(page.entries)

    async def rows() -> int:
        page = await engine.scan(space, Span.prefix("number:"), limit=SCANNED)
        keys = [f"item:{row.key.rpartition(':')[2]}" for row in page.rows]
        return len(await engine.read(space, keys))

    return [
        ("put, alone", 1, put, commit),
        (f"put, {WRITERS} at once", WRITERS, put, commit),
        ("get", 1, get, read),
        (f"scan of {SCANNED:,}", 1, scan, rows),
    ]


def _item(number: int) -> Item:
    return Item(f"{number:08d}", f"name {number}", f"group {number % 10}", number, ["red", f"tag {number % 100}"])


def _batch(item: Item) -> Batch:
    """The rows that the store writes for the item, and the check that it is new."""
    keys = ITEM.template.split(f"item:{item.id}")
    assert keys is not None
    puts = [Put(f"item:{item.id}", msgspec.json.encode(item))]
    for derived in ITEM.derived:
        puts += [Put(key, value) for key, value in derived.rows(item, keys).items()]
    return Batch(checks=(Check(puts[0].key, None),), puts=tuple(puts))


async def _contest(
    work: str, tasks: int, ours: Work, limit: Work, seconds: float, say: Callable[[str], None]
) -> Contest:
    found: dict[str, list[tuple[float, list[float]]]] = {"store": [], "engine": []}
    for turn in range(ROUNDS):
        say(f"{work}: round {turn + 1} of {ROUNDS}")
        contestants = [("store", ours), ("engine", limit)]
        for name, each in contestants if turn % 2 else reversed(contestants):
            found[name].append(await _round(each, tasks, seconds))
    return Contest(work, _speed(found["store"]), _speed(found["engine"]))


async def _round(work: Work, tasks: int, seconds: float) -> tuple[float, list[float]]:
    """How many in a second, and how long each took."""
    times: list[float] = []
    done = 0
    start = time.perf_counter()

    async def go() -> None:
        nonlocal done
        while (begun := time.perf_counter()) < start + seconds:
            count = await work()
            done += count
            times.append(time.perf_counter() - begun)
            await asyncio.sleep(0)

    await asyncio.gather(*(go() for _ in range(tasks)))
    return done / (time.perf_counter() - start), times


def _speed(rounds: list[tuple[float, list[float]]]) -> Speed:
    times = sorted(taken for _, each in rounds for taken in each)
    p50, p99 = (times[min(len(times) - 1, len(times) * percent // 100)] * 1_000 for percent in (50, 99))
    return Speed(statistics.median(rate for rate, _ in rounds), p50, p99)


async def _empty(engine: Engine, space: str) -> None:
    rows = min(1_000, engine.capabilities.commit_rows_max)
    while keys := [row.key for row in (await engine.scan(space, Span(), limit=rows, keys_only=True)).rows]:
        await engine.commit(space, Batch(deletes=tuple(keys)))


def report(done: Benched) -> Report:
    durable = (
        "each write was on disk when it was counted" if done.durable else "NOT durable: a lost machine loses writes"
    )
    text = (
        f"{done.engine}, medians of {done.rounds} rounds in turns; {durable}. "
        "A put is of a record with 5 derived rows, a scan by an index."
    )
    rates = [(contest.work, *_told(contest.store), *_told(contest.engine)) for contest in done.contests]
    head: tuple[str, ...] = ("", "store", "p50", "p99", "engine alone", "p50", "p99")
    bars = [(contest.work, _bar(contest.ratio), f"{contest.ratio:.2f}") for contest in done.contests]
    return Report(done.place, text, [Part("In a second", [head, *rates]), Part("Store / engine alone", [*bars])])


def _told(speed: Speed) -> tuple[str, ...]:
    return f"{speed.per_second:,.0f}", f"{speed.p50_ms:.2f} ms", f"{speed.p99_ms:.2f} ms"


def _bar(ratio: float) -> str:
    full = round(min(ratio, 1.0) * _BAR)
    return "█" * full + "·" * (_BAR - full)
