"""A move copies every row, whatever its name, and verifies the target."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import (
    ConflictError,
    UnreadableError,
    UsageError,
)
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store import MoveProgress, MoveResult, digest, move
from keyhouse.store.reads.long_read import COPY_BYTES, COPY_ROWS, rows
from keyhouse.store.transfer.bulk_writer import BulkWriter, batches
from keyhouse.store.transfer.move import MARK_KEY
from keyhouse.testing.conformance.hostile_values import KEYS, VALUES
from keyhouse.testing.conformance.spaces import HOSTILE
from keyhouse.testing.faults import FaultyEngine, Killed, die, meanwhile
from tests.store.support.filled_engines import ENGINES, closing, contents, digests, fill, opened

# Everything arrives


def test_a_store_with_hostile_names_goes_round_through_all_engines(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        first, last = MemoryEngine(clock), MemoryEngine(clock)
        file, folder = opened("sqlite", tmp_path, clock), opened("rocksdb", tmp_path, clock)
        async with closing(file, folder):
            for space in HOSTILE:
                await first.commit(space, Batch(puts=(Put(f"key of {space}", b"1"),)))
            keys = list(dict.fromkeys(KEYS))
            for number, key in enumerate(keys):
                expires = clock.now() + 1_000 + number if number % 5 == 0 else None
                await first.commit(
                    "hostile", Batch(puts=(Put(key, VALUES[number % len(VALUES)], expires),))
                )
            await first.commit("hostile", Batch(puts=(Put("expired", b"1", clock.now()),)))
            await first.commit("gone", Batch(puts=(Put("expired", b"1", clock.now()),)))
            expected, whole = await digests(first), await contents(first)
            stations = [first, file, folder, last]
            for source, target in pairwise(stations):
                moved = await move(source, target, name="before")
                assert {
                    space.space: (space.rows, space.digest) for space in moved.spaces
                } == expected
                assert moved.rows == moved.written == len(keys) + len(HOSTILE)
                assert await contents(target) == whole
                assert await digests(target) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("source", ENGINES)
@pytest.mark.parametrize("target", ENGINES)
def test_a_move_is_proved_by_counts_and_digests_of_both(
    source: str, target: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        one, other = opened(source, tmp_path / "a", clock), opened(target, tmp_path / "b", clock)
        async with closing(one, other):
            await fill(one, rows=700)
            reports: list[MoveProgress] = []
            moved = await move(one, other, name="one", on_progress=reports.append)
            assert moved.rows == moved.written == 700 + 1_400 + 2_100
            assert moved.passes == 2
            assert await digests(one) == await digests(other)
            assert await contents(one) == await contents(other)
            assert [report.phase for report in reports] == sorted(
                report.phase for report in reports
            )
            assert [report.rows for report in reports if report.phase == "copying"][-1] == 4_200
            assert [report.rows for report in reports if report.phase == "verifying"][-1] == 4_200
            assert max(report.written for report in reports) == 4_200

    asyncio.run(scenario())


def test_an_empty_store_is_moved(tmp_path: Path) -> None:
    assert asyncio.run(move(MemoryEngine(), MemoryEngine(), name="nothing")) == MoveResult(
        0, 0, 2, []
    )


def test_a_digest_tells_every_difference_between_two_spaces() -> None:
    async def of(*puts: Put) -> str:
        engine = MemoryEngine(ManualClock(0))
        await engine.commit("s", Batch(puts=puts))
        return (await digest(engine, "s")).text()

    async def scenario() -> None:
        stores = [
            (),
            (Put("a", b"1"),),
            (Put("a", b"2"),),
            (Put("b", b"1"),),
            (Put("a", b"1", 1_000),),
            (Put("a", b"1", 1_001),),
            (Put("a", b"11"),),
            (Put("a1", b"1"),),
            (Put("a", b"1"), Put("b", b"1")),
            (Put("a", b"1b1"),),
        ]
        assert len({await of(*puts) for puts in stores if puts}) == len(stores) - 1
        engine = MemoryEngine(ManualClock(0))
        assert (await digest(engine, "s")).rows == 0

    asyncio.run(scenario())


def test_commits_respect_the_targets_limits() -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        target = FaultyEngine(MemoryEngine(source.clock), rows=7, bytes=1_000)
        for number in range(100):
            await source.commit("s", Batch(puts=(Put(f"k{number:03d}", b"x" * (number * 9)),)))
        await move(source, target, name="wide")
        assert await contents(source) == await contents(target)
        sizes = [len(batch.puts) + len(batch.deletes) for batch in target.batches]
        assert max(sizes) == 7

    asyncio.run(scenario())


def test_one_thing_decides_what_goes_into_a_commit_whichever_way_rows_come() -> None:
    """One of two implementations counted a key's characters instead of its bytes."""

    async def scenario() -> None:
        target = FaultyEngine(MemoryEngine(), rows=7, bytes=1_000)
        puts = [Put("é" * (1 + number % 90), b"x" * (number * 9)) for number in range(200)]
        writes = BulkWriter(target, "s")
        for put in puts:
            await writes.put(put)
        await writes.flush()
        assert list(batches(target, puts)) == target.batches
        assert [put for batch in target.batches for put in batch.puts] == puts
        for batch in target.batches:
            size = sum(len(put.key.encode()) + len(put.value) for put in batch.puts)
            assert len(batch.puts) <= 7 and (size <= 1_000 or len(batch.puts) == 1)
        assert max(len(batch.puts) for batch in target.batches) == 7

    asyncio.run(scenario())


def test_pages_are_small_where_values_are_large() -> None:
    async def scenario() -> None:
        inner = MemoryEngine()
        for number in range(40):
            await inner.commit(
                "large",
                Batch(puts=tuple(Put(f"{number}/{part}", b"x" * 300_000) for part in range(5))),
            )
        await inner.commit(
            "small", Batch(puts=tuple(Put(f"k{number:05d}", b"1") for number in range(5_000)))
        )
        engine = FaultyEngine(inner)
        assert len([row async for row in rows(engine, "large")]) == 200
        assert max(engine.limits) * 300_000 <= 2 * COPY_BYTES
        engine.limits.clear()
        assert len([row async for row in rows(engine, "small")]) == 5_000
        assert max(engine.limits) == COPY_ROWS

    asyncio.run(scenario())


# Ownership of the target


def test_a_second_run_finds_the_same_and_writes_nothing() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        first = await move(source, target, name="one")
        revision = (await target.scan("s0", Span(), limit=1)).revision
        again = await move(source, target, name="one")
        assert (again.rows, again.spaces, again.written) == (first.rows, first.spaces, 0)
        assert (await target.scan("s0", Span(), limit=1)).revision == revision

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "theirs", [Put("other", b"1"), Put("k00001", b"7"), Put("k00001", b'{"n":1}', 2**52)]
)
def test_a_target_with_other_rows_is_rejected_and_left_unchanged(theirs: Put) -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        await fill(target)
        await target.commit("s0", Batch(puts=(theirs,)))
        before = await contents(target)
        with pytest.raises(UsageError, match="has other rows") as refusal:
            await move(source, target, name="one")
        assert refusal.value.fields["differing_rows"] >= 1  # type: ignore[operator]
        assert await contents(target) == before

    asyncio.run(scenario())


def test_the_target_of_another_move_is_rejected() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(5)), name="one")
        with pytest.raises(UsageError, match="another source") as refusal:
            await move(source, target, name="two")
        assert refusal.value.fields["started_from"] == "one"

    asyncio.run(scenario())


def test_the_target_of_an_unfinished_move_is_not_a_source() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()
        await fill(source)
        with pytest.raises(Killed):
            await move(source, FaultyEngine(target, die(5)), name="one")
        with pytest.raises(UsageError, match="unfinished"):
            await move(target, MemoryEngine(), name="half")

    asyncio.run(scenario())


def test_an_unreadable_marker_row_is_reported() -> None:
    async def scenario() -> None:
        target = MemoryEngine()
        await target.commit(MARK_SPACE, Batch(puts=(Put(MARK_KEY, b"7"),)))
        with pytest.raises(UnreadableError):
            await move(MemoryEngine(), target, name="one")

    asyncio.run(scenario())


def test_of_two_concurrent_moves_one_fails() -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(), MemoryEngine()

        async def begin() -> None:
            await target.commit(
                MARK_SPACE, Batch(puts=(Put(MARK_KEY, b'{"source":"x","started":1}'),))
            )

        with pytest.raises(ConflictError, match="just started"):
            await move(source, FaultyEngine(target, meanwhile(1, begin, call="commit")), name="one")

    asyncio.run(scenario())
