"""Long reads: pages of bounded size."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from keyhouse import Index, Record, Schema, Space, Store, TextSegment
from keyhouse.engine import Row
from keyhouse.engines.memory import MemoryEngine
from keyhouse.store import Transaction, rows_while
from keyhouse.store.reads.long_read import PAGE_BYTES, PAGE_ROWS, LongRead

LARGE = "x" * 100_000


class Item(msgspec.Struct):
    id: str
    text: str


BY_TEXT = Index("idx:{id}")
ITEM = Record(Item, "item:{id}", BY_TEXT)
SCHEMA = Schema("items", ITEM, space=Space("a tenant", segment=TextSegment(chars_max=20)))


class Watched(MemoryEngine):
    """Notes the bytes of the largest read, and of all reads."""

    def __init__(self) -> None:
        super().__init__()
        self.most_bytes = self.bytes = 0

    async def scan(self, space: str, *arguments: Any, **named: Any) -> Any:
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
def test_other_tasks_run_between_two_pages(read: Callable[[Store], AsyncIterator[str]]) -> None:
    """A scan of an engine in this process, which never waits, held up every other task until it had
    ended, though its description said otherwise."""

    async def scenario() -> None:
        store = await filled("one", ["x"] * 3 * PAGE_ROWS)
        turns, is_read = 0, False

        async def other() -> None:
            nonlocal turns
            while not is_read:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        ids = [id async for id in read(store)]
        is_read = True
        await task
        assert len(ids) == 3 * PAGE_ROWS
        assert turns >= 2

    asyncio.run(scenario())


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
    read = LongRead()
    while read.rows < PAGE_ROWS:
        rows = read.rows
        assert read.fit([100] * rows) == rows  # the next has more while rows are small
    assert read.fit([100] * 10 + [100_000] * 100) == 12
    assert read.rows < 40
    assert read.fit([380_000] * 5) == 1  # one row always fits
    assert read.rows == 1
    assert read.fit([10]) == 1 and read.rows == 4
    assert 2 * 100_000 < PAGE_BYTES < 3 * 100_000


def test_rows_for_a_reply_of_limited_size_are_not_read_in_order_to_be_rejected() -> None:
    async def main() -> None:
        engine = Watched()
        store = await filled("ann", [LARGE] * 100 + ["small"] * 100, engine)
        engine.bytes = 0
        left = 1_000_000

        def fits(row: Row) -> bool:
            nonlocal left
            left -= len(row.value)
            return left >= 0

        rows, cursor = await rows_while(store, ITEM, fits)
        assert [row.key for row in rows] == [f"item:{number:05d}" for number in range(9)]
        assert engine.bytes < 3_000_000
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
        engine = Watched()
        store = await filled("ann", [LARGE] * 100, engine)
        keys = [f"item:{number:05d}" for number in range(0, 200, 2)]
        engine.bytes = 0
        found: list[Row | None] = []
        async with aclosing(store.rows_in_pages(keys)) as pages:
            async for page in pages:
                found += page
                if len(found) > 9:
                    break
        assert engine.bytes < 3_000_000
        async with aclosing(store.rows_in_pages(keys)) as pages:
            found = [row async for page in pages for row in page]
        assert [None if row is None else row.key for row in found] == [*keys[:50], *[None] * 50]

    asyncio.run(main())
