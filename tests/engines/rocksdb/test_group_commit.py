"""Group commit on RocksDB: isolation of writes in flight, recovery from failures, write stalls.

`embedded/test_group_commit.py` has the tests that SQLite shares.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from rocksdict import RdictIter, WriteBatch

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Change, Put, Row, Span
from keyhouse.engines.rocksdb import RocksdbEngine, writer
from keyhouse.engines.rocksdb.database import Database, WriteStall
from keyhouse.engines.rocksdb.engine import SWEEP_ROWS_MAX
from keyhouse.engines.thread_commit_queue import GROUP_ROWS_MAX
from keyhouse.errors import (
    ClosedError,
    FullError,
    UnavailableError,
    UnknownOutcomeError,
    WatchExpiredError,
)
from keyhouse.testing.conformance.harness import leave, step
from tests.engines.support.embedded_engines import count, one
from tests.support.polling import loop_turns, until

ALL = Span()


class Disk:
    """Wraps the database: counts calls, delays them, and injects failures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[str] = []
        self.syncs: list[str] = []
        self.opened = 0
        self.failing: str | None = None
        self.stalls = 0
        self.ready = threading.Event()
        self.ready.set()
        write, sync, open = Database.write, Database.sync, Database.open

        def failing_write(database: Database, batch: WriteBatch) -> None:
            if self.stalls:
                self.stalls -= 1
                raise WriteStall from Exception("Result incomplete: Write stall")
            self.writes.append(threading.current_thread().name)
            if self.failing == "write":
                database.failed = FullError("The disk is full; make room, then try again.")
                raise database.failed
            write(database, batch)

        def failing_sync(database: Database) -> None:
            self.ready.wait(30)
            self.syncs.append(threading.current_thread().name)
            if self.failing == "sync":
                database.failed = UnknownOutcomeError("The disk failed.")
                raise database.failed
            sync(database)

        def counting_open(database: Database) -> None:
            self.opened += 1
            if self.failing == "open":
                raise FullError("The disk is full; make room, then try again.")
            open(database)

        monkeypatch.setattr(Database, "write", failing_write)
        monkeypatch.setattr(Database, "sync", failing_sync)
        monkeypatch.setattr(Database, "open", counting_open)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[RocksdbEngine]:
    engine = RocksdbEngine.open(folder / "rows", **options)
    try:
        yield engine
    finally:
        await engine.close()


def test_the_loop_runs_while_the_disk_syncs(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            disk.ready.clear()
            commit = asyncio.ensure_future(engine.commit("s", one(1)))
            for _ in range(100):
                await asyncio.sleep(0)
                assert await engine.read("s", ["k0001"]) == [None]
            assert not commit.done()
            disk.ready.set()
            assert await commit == 1

    asyncio.run(scenario())


# Writes in flight are invisible


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_read_sees_a_commit_before_it_is_durable(
    tmp_path: Path, disk: Disk, alone: bool, reverse: bool
) -> None:
    clock = ManualClock()
    more = (
        tuple(Put(f"x{number:04d}", b"1") for number in range(GROUP_ROWS_MAX + 1)) if alone else ()
    )
    batch = Batch(
        puts=(
            Put("a", b"2"),
            Put("c", b"2"),
            Put("e", b"2", clock.now() - 1),
            Put("g", b"2"),
            *more,
        ),
        deletes=("d", "h"),
        adds=(Add("n", 1),),
    )

    async def scenario() -> None:
        async with opened(tmp_path, clock=clock) as engine:
            await engine.commit("s", Batch(puts=tuple(Put(key, b"1") for key in "bcdefn")))
            await engine.commit("t", Batch(puts=(Put("a", b"1"),)))
            spans = [
                ALL,
                Span("c", "e"),
                Span("c", "e\0"),
                Span("", "b"),
                Span("g"),
                Span("d", "d\0"),
            ]

            async def seen() -> list[object]:
                pages = [
                    await engine.scan("s", span, limit=n, reverse=reverse)
                    for span in spans
                    for n in (1, 2, 9_999)
                ]
                pages += [
                    await engine.scan("t", ALL, limit=10),
                    await engine.scan("x", ALL, limit=10),
                ]
                rows = await engine.read("s", list("abcdefghn"))
                return [pages, rows, [space async for space in engine.spaces()]]

            before = await seen()
            watch = asyncio.ensure_future(step(engine.watch("s", ALL, since=2)))
            disk.ready.clear()
            commit = asyncio.ensure_future(engine.commit("s", batch))
            created = asyncio.ensure_future(engine.commit("x", Batch(puts=(Put("a", b"1"),))))
            await until(lambda: len(disk.writes) >= 3)
            for _ in range(3):
                assert await seen() == before
                await asyncio.sleep(0)
            assert not commit.done() and not watch.done()
            disk.ready.set()
            assert await commit == 3
            assert await created == 4
            keys = [key for key in "abcfgn"] + [put.key for put in more]
            page = await engine.scan("s", ALL, limit=9_999, reverse=reverse)
            assert [row.key for row in page.rows] == (keys[::-1] if reverse else keys)
            assert page.revision == 4
            assert await watch == Change("a", 3, b"2")
            assert [space async for space in engine.spaces()] == ["s", "t", "x"]

    asyncio.run(scenario())


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_shows_complete_commits_while_the_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool, reverse: bool
) -> None:
    """The thread may write a large batch right before or after a scan creates its iterator."""

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", Batch(puts=tuple(Put(key, b"1") for key in "bd")))
            before = await engine.scan("s", ALL, limit=10, reverse=reverse)
            view, database = engine.view, engine.writer.database
            make = view.iterator

            def write() -> None:
                batch = WriteBatch(raw_mode=True)
                for key in (b"s\0a", b"s\0b", b"s\0c"):
                    batch.put(key, b"\0" * 16 + b"2")
                batch.delete(b"s\0d")
                view.hold({b"s\0a", b"s\0b", b"s\0c", b"s\0d"})
                database.write(batch)

            def beside_a_writer(stop: bytes | None) -> RdictIter:
                if early:
                    write()
                at = make(stop)
                if not early:
                    write()
                return at

            monkeypatch.setattr(view, "iterator", beside_a_writer)
            assert await engine.scan("s", ALL, limit=10, reverse=reverse) == before

    asyncio.run(scenario())


def test_a_sweep_in_flight_is_not_visible(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            await engine.commit("s", Batch(puts=(Put("a", b"1", clock.now() + 10), Put("b", b"1"))))
            clock.advance(milliseconds=10)
            disk.ready.clear()
            sweeping = asyncio.ensure_future(engine.sweep(limit=10))
            await until(lambda: len(disk.writes) >= 2)
            clock.set(
                clock.now() - 5
            )  # a clock may step back: the row is live again until the sweep is durable
            assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a", "b"]
            disk.ready.set()
            assert await sweeping == 1
            assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["b"]

    asyncio.run(scenario())


def test_a_watch_that_reads_the_log_while_it_is_pruned_expires(tmp_path: Path, disk: Disk) -> None:
    """While pruning was in flight, a watcher that read the log continued after the gap."""

    async def scenario() -> None:
        async with opened(tmp_path, changes_kept=5) as engine:
            for number in range(20):
                await engine.commit("s", one(number))
            disk.ready.clear()
            sweep = asyncio.ensure_future(engine.sweep(limit=10))
            await until(lambda: len(disk.writes) >= 21)
            with pytest.raises(WatchExpiredError):
                await step(engine.watch("s", ALL, since=10))
            watch = engine.watch("s", ALL, since=15)
            assert [(await step(watch)).revision for _ in range(5)] == [16, 17, 18, 19, 20]
            disk.ready.set()
            await sweep
            await leave(watch)

    asyncio.run(scenario())


# Failures


@pytest.mark.parametrize(
    ("failing", "error"), [("write", FullError), ("sync", UnknownOutcomeError)]
)
@pytest.mark.parametrize("rows", [1, GROUP_ROWS_MAX + 1])
def test_the_engine_recovers_from_a_disk_failure(
    tmp_path: Path, disk: Disk, failing: str, error: type[Exception], rows: int
) -> None:
    batch = Batch(
        puts=tuple(Put(f"k{number}", b"1") for number in range(rows)),
        adds=(Add("n", 1),),
        id="once",
    )

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", one(0))
            disk.failing = failing
            with pytest.raises(error):
                await engine.commit("s", batch)
            assert await count(engine) == 1, "what was not confirmed is not shown"
            assert await engine.read("s", ["n"]) == [None]
            disk.failing = None
            revision = await engine.commit("s", batch)
            assert disk.opened == 2
            assert await engine.commit("s", batch) == revision
            assert await engine.read("s", ["n"]) == [Row("n", b"1", cast(int, revision))]
            assert await count(engine) == 2 + rows

    asyncio.run(scenario())


def test_each_write_of_a_failed_group_gets_its_own_error(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            disk.failing = "write"
            answers = await asyncio.gather(
                *(engine.commit("s", one(n)) for n in range(8)), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [FullError] * 8
            assert len({id(answer) for answer in answers}) == 8

    asyncio.run(scenario())


def test_reads_and_commits_retry_a_failed_reopen(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", one(0))
            disk.failing = "write"
            with pytest.raises(FullError):
                await engine.commit("s", one(1))
            disk.failing = "open"
            for _ in range(2):
                with pytest.raises(FullError):
                    await engine.commit("s", one(1))
                with pytest.raises(FullError):
                    await engine.read("s", ["k0000"])
            disk.failing = None
            assert await engine.read("s", ["k0000"]) == [Row("k0000", b"1", 1)]
            assert await engine.commit("s", one(1)) == 2
            disk.failing = "write"
            with pytest.raises(FullError):
                await engine.commit("s", one(2))
            disk.failing = "open"
            with pytest.raises(FullError):
                await engine.commit("s", one(2))
        with pytest.raises(ClosedError):
            await engine.read("s", ["k0000"])

    asyncio.run(scenario())


def test_without_space_to_reopen_the_old_handle_keeps_reading(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            await engine.commit("s", one(0))
            disk.failing = "write"
            with pytest.raises(FullError):
                await engine.commit("s", one(1))
            disk.failing = None
            with monkeypatch.context() as patch:
                patch.setattr("keyhouse.engines.rocksdb.database.OPEN_BYTES", 2**62)
                with pytest.raises(FullError) as refusal:
                    await engine.commit("s", one(1))
                assert refusal.value.fields["needed_bytes"] >= 2**62  # type: ignore[operator]
                assert await engine.read("s", ["k0000"]) == [Row("k0000", b"1", 1)]
                assert await count(engine) == 1
            assert await engine.commit("s", one(1)) == 2

    asyncio.run(scenario())


def test_watches_deliver_unconfirmed_commits_that_survived(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            watch = engine.watch("s", ALL, since=0)
            await engine.commit("s", one(0))
            assert (await step(watch)).key == "k0000"
            disk.failing = "sync"
            with pytest.raises(UnknownOutcomeError):
                await engine.commit("s", one(1))
            disk.failing = None
            await engine.commit("s", one(2))
            assert [(await step(watch)).key for _ in range(2)] == ["k0001", "k0002"]
            await leave(watch)

    asyncio.run(scenario())


def test_a_write_stall_is_waited_for_on_the_thread(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            disk.stalls = 20
            commits = asyncio.gather(
                *(engine.commit("s", Batch(adds=(Add("n", 1),))) for _ in range(5))
            )
            turns = 0
            while not commits.done():
                await asyncio.sleep(0)
                turns += 1
            assert await commits == [1, 2, 3, 4, 5]
            assert turns > 5
            assert await engine.read("s", ["n"]) == [Row("n", b"5", 5)]

    asyncio.run(scenario())


def test_a_write_stall_that_does_not_end_fails_the_group_and_the_engine_recovers(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "STALL_SECONDS", 0.01)

    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            disk.stalls = 10_000
            with pytest.raises(UnavailableError, match="keep up"):
                await engine.commit("s", one(1))
            disk.stalls = 0
            assert await engine.commit("s", one(1)) == 1
            assert disk.opened == 1

    asyncio.run(scenario())


def test_rocksdb_rejects_a_stalled_write_instead_of_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as engine:
            database = engine.writer.database
            database.rows.set_options(
                {"level0_file_num_compaction_trigger": "100"}
            )  # so that compaction cannot catch up
            database.rows.set_options(
                {"level0_stop_writes_trigger": "1", "level0_slowdown_writes_trigger": "1"}
            )
            await engine.commit("s", one(1))
            database.rows.flush()
            batch = WriteBatch(raw_mode=True)
            batch.put(b"s\0a", b"1")
            with pytest.raises(WriteStall):
                database.write(batch)
            assert database.failed is None
            waiting = asyncio.ensure_future(engine.commit("s", one(2)))
            await loop_turns(100)
            assert not waiting.done()
            database.rows.set_options(
                {"level0_stop_writes_trigger": "60", "level0_slowdown_writes_trigger": "40"}
            )
            assert await waiting == 2

    asyncio.run(scenario())


# A sweep among commits


def test_others_commit_between_the_steps_of_a_sweep(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock=clock) as engine:
            rows = tuple(
                Put(f"k{number}", b"1", clock.now() + 1) for number in range(SWEEP_ROWS_MAX * 3)
            )
            await engine.commit("s", Batch(puts=rows))
            clock.advance(milliseconds=1)
            sweeping = asyncio.ensure_future(engine.sweep(limit=SWEEP_ROWS_MAX * 3))
            await asyncio.sleep(0)
            revision = await engine.commit("s", Batch(puts=(Put("between", b"1"),)))
            assert not sweeping.done()
            assert await sweeping == SWEEP_ROWS_MAX * 3
            assert revision is not None
            assert revision < (await engine.scan("s", ALL, limit=1)).revision

    asyncio.run(scenario())
