"""The engine of a service: long reads take turns, and a request learns what was read for it."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from keyhouse import Index, Record, Schema, Space, Store, TextSegment
from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http.read_meter import read_meter
from keyhouse.scheduling import work_turns
from keyhouse.scheduling.work_turns import QUIET_TURNS, SHARED_ROWS
from keyhouse.schema import at_field
from keyhouse.service.served_engine import ServedEngine
from keyhouse.store import Transaction
from keyhouse.store.reads.long_read import PAGE_BYTES, PAGE_ROWS, PAGE_ROWS_FIRST
from tests.support.polling import loop_turns

LARGE = "x" * 100_000


class Item(msgspec.Struct):
    id: str
    text: str


BY_TEXT = Index("idx:{id}")
ITEM = Record(Item, "item:{id}", BY_TEXT)
SCHEMA = Schema("items", ITEM, space=Space("a tenant", segment=TextSegment(chars_max=20)))


class Meter:
    def __init__(self) -> None:
        self.rows = self.size = 0

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size


class Noted(MemoryEngine):
    """Notes the space of every page."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[str] = []

    async def scan(self, space: str, *arguments: Any, **named: Any) -> Any:
        self.pages.append(space)
        return await super().scan(space, *arguments, **named)


async def filled(space: str, texts: list[str], engine: Engine | None = None) -> Store:
    store = Store(SCHEMA, ServedEngine(engine or MemoryEngine()), space)
    for start in range(0, len(texts), 500):

        async def put(tx: Transaction, start: int = start) -> None:
            for number, text in enumerate(texts[start : start + 500], start):
                await tx.put(ITEM, Item(f"{number:05d}", text))

        await store.transact(put)
    return store


def test_long_reads_take_turns_by_space_and_others_run_between_pages() -> None:
    async def main() -> None:
        engine = Noted()
        ann = await filled("ann", ["small"] * 2_000, engine)
        bob = await filled("bob", ["small"] * 2_000, engine)
        engine.pages.clear()
        counts = [asyncio.create_task(ann.count(ITEM)) for _ in range(8)]
        last = asyncio.create_task(bob.count(ITEM))
        most = 0
        while not last.done():
            before = len(engine.pages)
            await asyncio.sleep(0)
            most = max(most, len(engine.pages) - before)
        assert most <= 9  # the first page of each starts at once
        after = engine.pages[9:]
        assert abs(after.count("bob") - after.count("ann")) <= 2
        assert await asyncio.gather(*counts, last) == [2_000] * 9

    asyncio.run(main())


@pytest.mark.parametrize(
    ("long_seconds", "most", "least"), [(-1.0, QUIET_TURNS + 2, QUIET_TURNS), (1e9, 2, 1)]
)
def test_requests_have_some_turns_between_two_long_pages(
    monkeypatch: pytest.MonkeyPatch, long_seconds: float, most: int, least: int
) -> None:
    """A page was read in every turn, and a request waited for one in each turn that it took."""
    monkeypatch.setattr(work_turns, "LONG_STEP_SECONDS", long_seconds)
    monkeypatch.setattr(work_turns, "PAUSED_STEP_SECONDS", 1e9)

    async def main() -> None:
        engine = Noted()
        store = await filled("ann", ["small"] * 2_000, engine)
        counts = [asyncio.create_task(store.count(ITEM)) for _ in range(3)]
        await asyncio.sleep(0)
        engine.pages.clear()
        turns = 0
        while not all(task.done() for task in counts):
            await asyncio.sleep(0)
            turns += 1
        assert least <= turns / len(engine.pages) <= most

    asyncio.run(main())


def test_a_read_cancelled_while_it_waits_for_its_turn_does_not_delay_others() -> None:
    async def main() -> None:
        store = await filled("ann", ["small"] * 1_000)
        counts = [asyncio.create_task(store.count(ITEM)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in counts[:3]:
            task.cancel()
        assert await counts[3] == 1_000

    asyncio.run(main())


def test_a_request_learns_what_was_read_for_it() -> None:
    async def main() -> None:
        store = await filled("ann", ["small"] * 1_000)
        meter = Meter()
        read_meter.set(meter.add)
        async with aclosing(store.usage()) as pages:
            counted = [page async for page in pages]
        assert meter.rows == sum(page.keys for page in counted) == 2_000
        assert 0 < meter.size < sum(page.bytes for page in counted)

    asyncio.run(main())


class Lease(msgspec.Struct):
    id: str
    text: str
    until: str


LEASE = Record(Lease, "lease:{id}", expiry=at_field("until"))
LEASES = Schema("leases", LEASE, space=Space("a tenant"))


def test_a_page_of_large_records_that_expire_by_a_field_is_decoded_in_turns() -> None:
    """All of its rows were decoded at once, to know which have expired."""

    async def main() -> None:
        store = Store(LEASES, ServedEngine(MemoryEngine(ManualClock())), "ann")
        for number in range(90):
            text = LARGE if number >= 10 else ""
            await store.put(LEASE, Lease(f"{number:02d}", text, "2999-01-01T00:00:00.000Z"))
        reading = asyncio.ensure_future(store.page(LEASE, limit=50))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 40 * len(LARGE) // PAGE_BYTES
        page = await reading
        assert [entry.record.id for entry in page.entries] == [f"{n:02d}" for n in range(50)]
        rest = await store.page(LEASE, limit=50, cursor=page.cursor, reverse=False)
        assert [entry.record.id for entry in rest.entries] == [f"{n:02d}" for n in range(50, 90)]
        assert rest.cursor is None
        last = await store.page(LEASE, limit=20, reverse=True)
        assert [entry.record.id for entry in last.entries] == [
            f"{n:02d}" for n in range(89, 69, -1)
        ]

    asyncio.run(main())


def test_a_page_or_addresses_of_many_records_count_for_the_request_and_take_turns() -> None:
    """500 records of a page cost as one: 16 connections that listed held up all others for 20 s."""

    async def run() -> None:
        store = await filled("a", ["x" * 1_000] * 500)
        addresses = [{"id": f"{number:05d}"} for number in range(500)]
        reads: list[Callable[[int], Any]] = [
            lambda count: store.page(ITEM, limit=count),
            lambda count: store.page(ITEM, by=BY_TEXT, limit=count),
            lambda count: store.get_many(ITEM, addresses[:count]),
            lambda count: store.entries(ITEM, addresses[:count]),
        ]
        for read in reads:
            meter = Meter()
            read_meter.set(meter.add)
            await read(100)
            assert meter.rows == 0, "it is within the request"
            reading = asyncio.ensure_future(asyncio.gather(read(500), read(500), read(500)))
            turns = 0
            while not reading.done():
                await asyncio.sleep(0)
                turns += 1
            assert meter.rows == 1_500 and meter.size > 1_500_000
            assert turns > 3, "others ran between the reads"

    asyncio.run(run())


async def texts_of(store: Store) -> list[str]:
    return [entry.record.text async for entry in store.scan(ITEM)]


def test_small_reads_share_a_turn_and_a_small_one_behind_a_large_one_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every short list would else wait for another turn."""
    monkeypatch.setattr(work_turns, "LONG_STEP_SECONDS", 1e9)

    async def run() -> None:
        engine = Noted()
        small = await filled("small", ["x"] * 5, engine)
        large = await filled("large", [LARGE] * 5, engine)
        for stores, together in (
            ([small] * 8, SHARED_ROWS // PAGE_ROWS_FIRST),
            ([large, *[small] * 7], 1),
        ):
            await loop_turns(3 * QUIET_TURNS)  # the turns before are over
            engine.pages.clear()
            reading = [asyncio.ensure_future(texts_of(store)) for store in stores]
            await asyncio.sleep(0)
            assert len(engine.pages) == together
            assert [len(texts) for texts in await asyncio.gather(*reading)] == [5] * 8

    asyncio.run(run())


def test_rows_of_an_index_and_reads_of_few_records_are_free() -> None:
    async def run() -> None:
        store = await filled("a", ["x"] * 300)
        meter = Meter()
        read_meter.set(meter.add)
        assert len([entry async for entry in store.scan(ITEM, by=BY_TEXT)]) == 300
        assert meter.rows == 300, "the records alone"
        await store.page(ITEM, by=BY_TEXT, limit=100)
        await store.put_many(ITEM, [Item(f"{number:05d}", "y") for number in range(300)])
        assert meter.rows == 300

    asyncio.run(run())


def test_a_watch_costs_what_it_reads_until_it_has_caught_up() -> None:
    """A watch since an old revision read a whole space for the price of a request."""

    async def run() -> None:
        store = await filled("a", ["x"] * 300)
        meter, caught_up = Meter(), asyncio.Event()
        read_meter.set(meter.add)
        changes = store.record_changes(ITEM, since=0, caught_up=lambda revision: caught_up.set())
        async with aclosing(changes) as events:
            for _ in range(300):
                await anext(events)
            next_event = asyncio.ensure_future(anext(events))
            await caught_up.wait()
            replayed = meter.rows
            assert replayed >= 300 and meter.size > 0
            await store.put(ITEM, Item("new", "y"))
            await next_event
            assert meter.rows == replayed

    asyncio.run(run())


def test_a_store_of_a_program_pauses_between_pages_without_turns_or_a_meter() -> None:
    """A script that scanned its own file took the turns of a service, one for each page."""

    async def run() -> None:
        plain = MemoryEngine()
        await filled("a", ["x"] * 1_000, plain)
        meter = Meter()
        read_meter.set(meter.add)
        counting = asyncio.ensure_future(Store(SCHEMA, plain, "a").count(ITEM))
        for _ in range(1 + 1_000 // PAGE_ROWS):
            await asyncio.sleep(0)
        assert counting.done() and counting.result() == 1_000
        assert meter.rows == 0

    asyncio.run(run())
