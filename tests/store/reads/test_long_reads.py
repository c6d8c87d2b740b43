"""Long reads: bounded pages, turns between spaces, and the meter of a request."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from keyhouse import Index, Record, Schema, Space, Store, TextSegment
from keyhouse.clock import ManualClock
from keyhouse.engine import Row
from keyhouse.engines.memory import MemoryEngine
from keyhouse.read_meter import read_meter
from keyhouse.schema import at_field
from keyhouse.store import Transaction, rows_while
from keyhouse.store.reads import long_read
from keyhouse.store.reads.long_read import PAGE_BYTES, PAGE_ROWS, QUIET_TURNS, LongRead

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


class Watched(MemoryEngine):
    """Notes the space of every page, and the bytes of the largest read."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[str] = []
        self.most_bytes = 0

    async def scan(self, space: str, *arguments: Any, **named: Any) -> Any:
        self.pages.append(space)
        page = await super().scan(space, *arguments, **named)
        self._note(page.rows)
        return page

    async def read(self, space: str, *arguments: Any, **named: Any) -> Any:
        rows = await super().read(space, *arguments, **named)
        self._note(rows)
        return rows

    def _note(self, rows: Sequence[Row | None]) -> None:
        size = sum(len(row.value) for row in rows if row is not None)
        self.most_bytes = max(self.most_bytes, size)


async def filled(space: str, texts: list[str], engine: MemoryEngine | None = None) -> Store:
    store = Store(SCHEMA, engine or MemoryEngine(), space)
    for start in range(0, len(texts), 500):

        async def put(tx: Transaction, start: int = start) -> None:
            for number, text in enumerate(texts[start : start + 500], start):
                await tx.put(ITEM, Item(f"{number:05d}", text))

        await store.transact(put)
    return store


READS: dict[str, Callable[[Store], AsyncIterator[str]]] = {
    "scan": lambda store: (entry.record.id async for entry in store.scan(ITEM)),
    "scan by an index": lambda store: (
        entry.record.id async for entry in store.scan(ITEM, by=BY_TEXT)
    ),
    "scan in reverse": lambda store: (
        entry.record.id async for entry in store.scan(ITEM, reverse=True)
    ),
    "record rows": lambda store: (str(id) async for (id,), _ in store.record_rows(ITEM)),
    "rows": lambda store: (
        row.key[5:] async for row in store.row_scan() if row.key.startswith("item:")
    ),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_rows_that_suddenly_become_large_are_read_once_each(
    read: Callable[[Store], AsyncIterator[str]],
) -> None:
    async def main() -> None:
        texts = ["small"] * 700 + [LARGE] * 20 + ["small"] * 300
        store = await filled("ann", texts)
        ids = [id async for id in read(store)]
        assert sorted(ids) == [f"{number:05d}" for number in range(len(texts))]
        assert sorted(ids, reverse=ids[0] > ids[-1]) == ids

    asyncio.run(main())


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_step_reads_more_bytes_than_a_page_has(
    read: Callable[[Store], AsyncIterator[str]],
) -> None:
    """A step that was sized by small rows read 256 rows, however large: 97 MB at most."""

    async def main() -> None:
        engine = Watched()
        store = await filled("ann", ["small"] * 700 + [LARGE] * 20 + ["small"] * 300, engine)
        engine.most_bytes = 0
        async for _ in read(store):
            pass
        assert 2 * len(LARGE) < engine.most_bytes <= PAGE_BYTES

    asyncio.run(main())


def test_a_page_holds_its_bytes_and_one_row_at_most() -> None:
    read = LongRead("ann")
    while read.rows < PAGE_ROWS:
        rows = read.rows
        assert read.keep([100] * rows) == rows  # the next has more while rows are small
    assert read.keep([100] * 10 + [100_000] * 100) == 12
    assert read.rows < 40
    assert read.keep([380_000] * 5) == 1  # one row always fits
    assert read.rows == 1
    assert read.keep([10]) == 1 and read.rows == 4
    assert 2 * 100_000 < PAGE_BYTES < 3 * 100_000


def test_long_reads_take_turns_by_space_and_others_run_between_pages() -> None:
    async def main() -> None:
        engine = Watched()
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
    monkeypatch.setattr(long_read, "LONG_STEP_SECONDS", long_seconds)
    monkeypatch.setattr(long_read, "PAUSED_STEP_SECONDS", 1e9)

    async def main() -> None:
        engine = Watched()
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


def test_rows_for_a_reply_of_limited_size_are_not_read_in_order_to_be_rejected() -> None:
    async def main() -> None:
        store = await filled("ann", [LARGE] * 100 + ["small"] * 100)
        meter = Meter()
        read_meter.set(meter.add)
        left = 1_000_000

        def fits(row: Row) -> bool:
            nonlocal left
            left -= len(row.value)
            return left >= 0

        rows, cursor = await rows_while(store, ITEM, fits)
        assert [row.key for row in rows] == [f"item:{number:05d}" for number in range(9)]
        assert meter.size < 3_000_000
        rest: list[str] = []
        while cursor is not None:
            rows, cursor = await rows_while(store, ITEM, lambda row: True, limit=7, cursor=cursor)
            assert len(rows) <= 7
            rest += [row.key for row in rows]
        assert rest == [f"item:{number:05d}" for number in range(9, 200)]
        assert await rows_while(store, ITEM, lambda row: False) == ([], None)

    asyncio.run(main())


def test_rows_at_keys_are_read_as_far_as_they_are_wanted() -> None:
    async def main() -> None:
        store = await filled("ann", [LARGE] * 100)
        keys = [f"item:{number:05d}" for number in range(0, 200, 2)]
        meter = Meter()
        read_meter.set(meter.add)
        found: list[Row | None] = []
        async with aclosing(store.rows_in_pages(keys)) as pages:
            async for page in pages:
                found += page
                if len(found) > 9:
                    break
        assert meter.size < 3_000_000
        async with aclosing(store.rows_in_pages(keys)) as pages:
            found = [row async for page in pages for row in page]
        assert [None if row is None else row.key for row in found] == [*keys[:50], *[None] * 50]

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
        store = Store(LEASES, MemoryEngine(ManualClock()), "ann")
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


def test_a_page_or_addresses_of_many_records_count_for_the_request_and_wait_for_a_turn() -> None:
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
            others: list[None] = []
            await read(100)
            assert meter.rows == 0, "it is within the request"
            asyncio.get_running_loop().call_soon(others.append, None)
            await read(500)
            assert meter.rows == 500 and meter.size > 500_000
            assert others, "another task ran"

    asyncio.run(run())
