"""Group commit on SQLite: recovery from failures, locks of other processes, sweeps among commits.

`embedded/test_group_commit.py` has the tests that RocksDB shares.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Put, Row, Span
from keyhouse.engines import pace
from keyhouse.engines.sqlite import SqliteEngine, connections
from keyhouse.engines.sqlite import engine as engine_module
from keyhouse.engines.sqlite.engine import SWEEP_ROWS_BUSY, SWEEP_ROWS_MAX
from keyhouse.engines.sqlite.writer import SqliteWrite
from keyhouse.engines.thread_commit_queue import GROUP_ROWS_MAX
from keyhouse.errors import FullError, UnavailableError, UnknownOutcomeError
from tests.engines.support.embedded_engines import Witness, count, one
from tests.engines.support.faulty_disk import Disk


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine.open(folder / "rows.db", **options)
    try:
        yield engine
    finally:
        await engine.close()


def test_a_full_disk_fails_the_whole_group_and_the_engine_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", one(0))
            connection = engine.writer.connection
            connection.pragma("max_page_count", connection.pragma("page_count") + 5)
            batches = [one(number, b"x" * 10_000) for number in range(1, 9)]
            answers = await asyncio.gather(
                *(engine.commit("s", batch) for batch in batches), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [FullError] * 8
            assert len({id(answer) for answer in answers}) == 8
            assert "make room" in str(answers[0])
            assert await count(engine) == 1
            connection.pragma("max_page_count", 1_000_000)
            assert await engine.commit("s", one(1)) == 2
            assert await count(engine) == 2

    asyncio.run(scenario())


def test_a_transaction_left_open_is_rolled_back_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise SystemExit("neither committed nor rolled back")

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(engine.writer, "make_durable", fails)
                with pytest.raises(UnknownOutcomeError):
                    await engine.commit("s", one(0))
            assert await engine.commit("s", one(1)) == 1
            assert await count(engine) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("failing", "error"),
    [("full", FullError), ("write", UnknownOutcomeError), ("sync", UnknownOutcomeError)],
)
@pytest.mark.parametrize("rows", [1, GROUP_ROWS_MAX + 1])
def test_the_engine_recovers_from_a_disk_failure_in_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: type[Exception], rows: int
) -> None:
    disk = Disk("failing")
    monkeypatch.setattr(connections, "Connection", disk.connect)
    batch = Batch(
        puts=tuple(Put(f"k{number}", b"1") for number in range(rows)),
        adds=(Add("n", 1),),
        id="once",
    )

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", one(0))
            disk.failing = failing
            for _ in range(2):
                with pytest.raises(error):
                    await engine.commit("s", batch)
                assert await count(engine) == 1
            disk.failing = None
            revision = await engine.commit("s", batch)
            assert await engine.commit("s", batch) == revision
            assert await engine.read("s", ["n"]) == [Row("n", b"1", cast(int, revision))]

    asyncio.run(scenario())


def test_a_commit_waits_for_another_process_without_blocking_the_loop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            other = apsw.Connection(str(tmp_path / "rows.db"))
            other.execute("BEGIN IMMEDIATE")
            commits = asyncio.gather(*(engine.commit("s", one(number)) for number in range(10)))
            turns = 0
            while turns < 100:
                await asyncio.sleep(0)
                assert await engine.read("s", ["k0000"]) == [None]
                turns += 1
            assert not commits.done()
            other.execute("COMMIT")
            assert await commits == list(range(1, 11))
            other.close()

    asyncio.run(scenario())


def test_a_lock_that_is_never_released_fails_the_group_and_the_engine_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCK_WAIT_SECONDS", 0.05)

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            other = apsw.Connection(str(tmp_path / "rows.db"))
            other.execute("BEGIN IMMEDIATE")
            answers = await asyncio.gather(
                *(engine.commit("s", one(n)) for n in range(3)), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [UnavailableError] * 3
            assert "try again" in str(answers[0])
            other.execute("COMMIT")
            assert await engine.commit("s", one(1)) == 1
            other.close()

    asyncio.run(scenario())


async def with_expired(engine: SqliteEngine, clock: ManualClock, rows: int) -> None:
    await engine.commit(
        "s", Batch(puts=tuple(Put(f"k{number}", b"1", clock.now() + 1) for number in range(rows)))
    )
    clock.advance(milliseconds=1)


async def steps(engine: SqliteEngine) -> list[int]:
    """Return the number of rows that each step of a sweep removed: each step is one change."""
    logged = engine.reader.connection.execute(
        "SELECT json_array_length(keys, '$[1]') FROM changes ORDER BY revision"
    )
    return [rows for (rows,) in logged if rows]


def test_a_sweep_shares_the_transactions_of_concurrent_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, SWEEP_ROWS_BUSY * 20)
            witness = Witness(engine, monkeypatch)
            sweeping = asyncio.ensure_future(engine.sweep(limit=10_000))
            writes = 0
            while not sweeping.done():
                await engine.commit("s", Batch(puts=(Put("between", b"1"),)))
                writes += 1
            assert await sweeping == SWEEP_ROWS_BUSY * 20
            taken = await steps(engine)
            assert max(taken) <= 4 * SWEEP_ROWS_BUSY
            assert len(witness.syncs) < writes + len(taken), "some of them together"

    asyncio.run(scenario())


def test_a_sweep_pauses_between_its_steps_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "IDLE_SECONDS", 60.0)

    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, SWEEP_ROWS_BUSY * 20)
            pauses: list[float] = []
            monkeypatch.setattr(engine_module, "pause", partial(_record, pauses))
            sweeping = asyncio.ensure_future(engine.sweep(limit=10_000))
            while not sweeping.done():
                await engine.commit("s", Batch(puts=(Put("between", b"1"),)))
            await sweeping
            assert min(pauses[1:]) > 0  # its first step may come before the first write
            pauses.clear()
            await with_expired(engine, clock, SWEEP_ROWS_BUSY * 20)
            await engine.sweep(limit=10_000)
            assert set(pauses) == {0}, "nobody else writes"

    asyncio.run(scenario())


async def _record(pauses: list[float], seconds: float) -> None:
    pauses.append(seconds)


def test_a_sweep_without_other_writers_takes_larger_steps_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "IDLE_SECONDS", 60.0)

    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, 6_000)
            assert await engine.sweep(limit=10_000) == 6_000
            assert await steps(engine) == [16, 64, 256, 1_024, SWEEP_ROWS_MAX, SWEEP_ROWS_MAX, 640]

    asyncio.run(scenario())


def test_a_sweep_keeps_the_pace_of_the_last_one_if_nobody_has_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "IDLE_SECONDS", 60.0)

    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, 1_000)
            assert await engine.sweep(limit=336) == 336
            assert await engine.sweep(limit=10_000) == 664
            assert await steps(engine) == [16, 64, 256, 664]
            await with_expired(engine, clock, 100)
            assert await engine.sweep(limit=10_000) == 100
            assert (await steps(engine))[4:] == [16, 64, 20], "others wrote"

    asyncio.run(scenario())


def test_a_sweep_with_slow_steps_takes_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "IDLE_SECONDS", 0.0)

    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, 90)
            assert await engine.sweep(limit=1_000) == 90
            assert (await steps(engine))[:4] == [16, 8, 8, 8]

    asyncio.run(scenario())


@pytest.mark.parametrize("put_first", [True, False])
def test_a_row_put_again_during_a_sweep_is_not_reported_as_deleted(
    tmp_path: Path, put_first: bool
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await with_expired(engine, clock, 1)
            before = engine.reader.revision()
            put = engine.commit("s", Batch(puts=(Put("k0", b"2"),)))
            sweep = engine.sweep(limit=10)
            await (asyncio.gather(put, sweep) if put_first else asyncio.gather(sweep, put))
            found = await engine.read("s", ["k0"])
            assert found[0] is not None and found[0].value == b"2"
            changes = engine.watch("s", Span(), since=before)
            seen = [await anext(changes)]
            while seen[-1].revision < engine.reader.revision():
                seen.append(await anext(changes))
            assert seen[-1].value == b"2"
            await changes.aclose()

    asyncio.run(scenario())


def test_a_sweep_prunes_changes_and_batch_ids_and_never_the_newest(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock, changes_kept=10) as engine:
            for start in range(0, 3_000, 500):
                batches = [
                    Batch(adds=(Add("n", 1),), id=f"id {number}")
                    for number in range(start, start + 500)
                ]
                await asyncio.gather(*(engine.commit("s", batch) for batch in batches))
            newest = engine.reader.revision()
            clock.advance(seconds=3 * 24 * 3_600)
            assert await engine.sweep(limit=1) == 0
            look = engine.reader.connection.execute
            assert look("SELECT count(*), max(revision) FROM changes").get == (10, newest)
            assert look("SELECT count(*) FROM applied").get == 0

    asyncio.run(scenario())


def test_a_step_of_pruning_reads_only_the_changes_that_it_deletes(tmp_path: Path) -> None:
    """It once read every change that may be deleted: steps of 10 ms, while others wrote."""
    hundreds = 0

    def counted() -> bool:
        nonlocal hundreds
        hundreds += 1
        return False

    async def scenario() -> None:
        async with opened(tmp_path, changes_kept=10) as engine:
            await asyncio.gather(*(engine.commit("s", one(number)) for number in range(5_000)))
            engine.writer.connection.set_progress_handler(counted, 100)
            prune = SqliteWrite(lambda transaction: transaction.prune(4_000, 2))
            assert await engine.writer.submit(prune) == 2
            assert hundreds < 10, "of instructions"

    asyncio.run(scenario())
