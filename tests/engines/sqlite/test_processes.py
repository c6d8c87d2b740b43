"""Several processes on one file: no update is lost or applied twice, and none starves."""

import asyncio
import multiprocessing
from pathlib import Path

import apsw
import pytest

from keyhouse.engine import Batch, Put, Row, Span
from keyhouse.engines.sqlite import SqliteEngine, connections
from tests.engines.support.increment_process import JOBS, TASKS, work

PROCESSES = 4
ROUNDS = 40


def test_four_processes_lose_no_update_and_claim_no_job_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    jobs = [f"job/{number:03d}" for number in range(JOBS)]

    async def prepare() -> None:
        engine = SqliteEngine.open(path)
        await engine.commit("s", Batch(puts=tuple(Put(job, b"1") for job in jobs)))
        await engine.close()

    async def result() -> tuple[list[Row | None], list[str]]:
        engine = SqliteEngine.open(path)
        rows = await engine.read("s", ["added", "set"])
        claimed = await engine.scan("s", Span.prefix("claimed/"), limit=1_000, keys_only=True)
        await engine.close()
        return rows, [row.key.removeprefix("claimed/") for row in claimed.rows]

    asyncio.run(prepare())
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        answers = pool.starmap(work, [(path, f"p{number}", ROUNDS) for number in range(PROCESSES)])
    rows, claimed = asyncio.run(result())
    assert [row and row.value for row in rows] == [
        b"%d" % (PROCESSES * TASKS * ROUNDS),
        b"%d" % (PROCESSES * TASKS * (ROUNDS // 4)),
    ]
    assert claimed == jobs
    assert sorted(job for _, mine in answers for job in mine) == jobs
    revisions = [revision for got, _ in answers for revision in got]
    assert len(set(revisions)) == len(revisions) == PROCESSES * TASKS * (ROUNDS + ROUNDS // 4)


def test_a_file_opens_and_reads_while_another_process_holds_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`keyhouse scan` beside a service took the lock to look for existing tables.

    It failed when a sync of the service took longer than its lock timeout.
    """
    path = tmp_path / "rows.db"
    monkeypatch.setattr(connections, "LOCK_WAIT_SECONDS", 0)

    async def scenario() -> None:
        first = SqliteEngine.open(path)
        await first.commit("s", Batch(puts=(Put("a", b"1"),)))
        holder = apsw.Connection(str(path))
        holder.execute("BEGIN IMMEDIATE")
        second = SqliteEngine.open(path)
        assert await second.read("s", ["a"]) == [Row("a", b"1", 1)]
        holder.execute("ROLLBACK")
        assert await second.commit("s", Batch(puts=(Put("a", b"2"),))) == 2
        holder.close()
        for engine in (first, second):
            await engine.close()

    asyncio.run(scenario())


def test_two_engines_alternate_and_revisions_increase(tmp_path: Path) -> None:
    async def scenario() -> None:
        engines = [SqliteEngine.open(tmp_path / "rows.db") for _ in range(2)]
        revisions = []
        for number in range(20):
            engine, other = engines[number % 2], engines[1 - number % 2]
            revisions.append(await engine.commit("s", Batch(puts=(Put("a", b"%d" % number),))))
            (row,) = await other.read("s", ["a"])
            assert row is not None
            assert row.value == b"%d" % number
        assert revisions == list(range(1, 21))
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


def test_closing_one_engine_does_not_affect_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = (SqliteEngine.open(tmp_path / "rows.db") for _ in range(2))
        await first.commit("s", Batch(puts=(Put("a", b"1"),)))
        await first.close()
        assert await second.commit("s", Batch(puts=(Put("b", b"1"),))) == 2
        assert len((await second.scan("s", Span(), limit=10)).rows) == 2
        await second.close()

    asyncio.run(scenario())
