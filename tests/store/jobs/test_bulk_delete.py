"""A bulk delete removes records with their derived rows, can be resumed, and can empty a space."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps

import msgspec
import pytest

from keyhouse import Store
from keyhouse.demo.clips import BOARD, CLIP, NEXT_BOARD, Clip
from keyhouse.engine import Batch, Capabilities, Check, Put, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import ContentionError, UsageError
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import BulkDelete, BulkDeleteResult, migrate, verify


def awaited(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def main() -> None:
            await test()

        asyncio.run(main())

    return run


async def everything(engine: MemoryEngine, space: str = "a") -> list[Row]:
    return (await engine.scan(space, Span(), limit=10_000)).rows


async def fill(store: Store, count: int) -> None:
    for number in range(count):
        await store.put(
            CLIP,
            Clip(id=f"{number:04d}", title=f"T{number}", second=number, viewer="A", tags=["x"]),
        )


@awaited
async def test_records_are_deleted_with_their_rows_and_others_stay() -> None:
    engine = MemoryEngine()
    store = Store(BOARD, engine, "a")
    await fill(store, 130)
    reported: list[int] = []
    removal = BulkDelete(BOARD, engine, "a", reported.append)
    assert [row.key async for row, _ in removal.records(Span.prefix("clip:00"))] == [
        f"clip:{n:04d}" for n in range(100)
    ]
    assert await removal.run(Span.prefix("clip:00")) == BulkDeleteResult(100, 0)
    assert reported[-1] == 100
    assert await store.count(CLIP) == 30
    assert len(await everything(engine)) == 30 * 4
    assert [finding async for finding in verify(store)] == []
    assert await removal.run(Span.prefix("clip:00")) == BulkDeleteResult(0, 0)


@awaited
async def test_rows_that_are_derived_are_not_removed_by_their_own_keys() -> None:
    engine = MemoryEngine()
    await fill(Store(BOARD, engine, "a"), 3)
    assert await BulkDelete(BOARD, engine, "a").run(Span.prefix("idx:")) == BulkDeleteResult(0, 0)
    assert len(await everything(engine)) == 12


@awaited
async def test_records_of_a_scan_by_an_index_are_deleted_by_their_keys() -> None:
    engine = MemoryEngine()
    store = Store(BOARD, engine, "a")
    await fill(store, 130)

    async def listed() -> AsyncIterator[str]:
        for number in range(0, 130, 2):
            yield f"clip:{number:04d}"

    removal = BulkDelete(BOARD, engine, "a")
    assert await removal.run_keys(listed()) == BulkDeleteResult(65, 0)
    assert await store.count(CLIP) == 65
    assert [finding async for finding in verify(store)] == []
    assert await removal.run_keys(listed()) == BulkDeleteResult(0, 0)

    async def other() -> AsyncIterator[str]:
        yield "idx:of-no-record"

    with pytest.raises(UsageError, match="not that of a record"):
        await removal.run_keys(other())


@awaited
async def test_an_unreadable_record_stays_and_is_counted() -> None:
    engine = MemoryEngine()
    await fill(Store(BOARD, engine, "a"), 7)
    await engine.commit("a", Batch(puts=(Put("clip:0003", b"{"),)))
    assert await BulkDelete(BOARD, engine, "a").run(Span()) == BulkDeleteResult(6, 1)
    assert "clip:0003" in [row.key for row in await everything(engine)]


@awaited
async def test_a_commit_that_would_be_too_large_is_made_smaller() -> None:
    class Small(MemoryEngine):
        @property
        def capabilities(self) -> Capabilities:
            return msgspec.structs.replace(super().capabilities, commit_rows_max=9)

    engine = Small()
    await fill(Store(BOARD, engine, "a"), 60)
    assert await BulkDelete(BOARD, engine, "a").run(Span()) == BulkDeleteResult(60, 0)
    assert await everything(engine) == []


@awaited
async def test_a_space_is_emptied_of_all_that_it_holds_and_others_are_not() -> None:
    engine = MemoryEngine()
    await fill(Store(BOARD, engine, "a"), 3)
    for space in ("a", "b"):
        store = Store(NEXT_BOARD, engine, space)
        await migrate(store)
    before = await everything(engine, "b")
    await engine.commit(
        "a",
        Batch(puts=(Put("unknown", b"1"), Put("clip:0001", b"{"), Put("idx:clip:tag:y:1", b"1"))),
    )
    assert await BulkDelete(NEXT_BOARD, engine, "a").run(Span.prefix("meta:")) == BulkDeleteResult(
        0, 0
    )
    assert (await BulkDelete(NEXT_BOARD, engine, "a").empty()).records == 2
    assert await everything(engine) == []
    assert await everything(engine, "b") == before


@awaited
async def test_a_space_that_is_still_written_is_not_reported_empty() -> None:
    class Busy(MemoryEngine):
        async def commit(self, space: str, batch: Batch) -> int | None:
            done = await super().commit(space, batch)
            if batch.deletes:
                await super().commit(space, Batch(puts=(Put("more", b"1"),)))
            return done

    engine = Busy()
    await engine.commit("a", Batch(puts=(Put("more", b"1"),)))
    with pytest.raises(ContentionError):
        await BulkDelete(BOARD, engine, "a").empty()


@awaited
async def test_a_row_that_changes_while_a_space_is_emptied_is_looked_at_again() -> None:
    class Racing(MemoryEngine):
        raced = False

        async def commit(self, space: str, batch: Batch) -> int | None:
            if batch.deletes and not self.raced:
                self.raced = True
                await super().commit(space, Batch(puts=(Put("row", b"2"),)))
            return await super().commit(space, batch)

    engine = Racing()
    await engine.commit("a", Batch((Check("row", None),), puts=(Put("row", b"1"),)))
    await BulkDelete(BOARD, engine, "a").empty()
    assert engine.raced
    assert await everything(engine) == []


@awaited
async def test_records_under_every_setting_of_a_schema_are_removed() -> None:
    one = Record(int, "{place}/one", name="one")
    schema = Schema("placed", one, space=Space("a shop"), fixed={"place": "main"})
    engine = MemoryEngine()
    for place in ("main", "side"):
        await Store(schema, engine, "a", place=place).put(one, 1)
    assert await BulkDelete(schema, engine, "a").run(Span()) == BulkDeleteResult(2, 0)
