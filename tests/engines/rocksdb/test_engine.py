"""The RocksDB engine: its format on disk, its settings, damage, and cleanup."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Check, Put, Span
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb.encoding import (
    FAMILIES,
    FORMAT,
    HEAD,
    NEVER,
    bounds,
    moment,
    moment_of,
    prefix_of,
)
from keyhouse.engines.rocksdb.settings import options
from keyhouse.errors import (
    UnreadableError,
    UsageError,
)
from tests.engines.support.rocksdb_databases import contents, make, opened, put, running_with

ALL = Span()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows"


# Format on disk


def test_rows_are_stored_as_the_encoding_describes(path: Path) -> None:
    async def write() -> None:
        async with opened(path, clock=ManualClock(1_000)) as engine:
            await put(engine, "é", value=b'{"n":7}')
            await put(engine, "b", value=b"2", expires=5_000, space="t")
            await engine.commit("s", Batch(deletes=("x",), adds=(Add("n", 3),), id="once"))

    asyncio.run(write())
    never = b"\x7f" + b"\xff" * 7
    assert contents(path, "default") == {
        b"s\0\xc3\xa9": b"\0\0\0\0\0\0\0\x01" + never + b'{"n":7}',
        b"s\0n": b"\0\0\0\0\0\0\0\x03" + never + b"3",
        b"t\0b": b"\0\0\0\0\0\0\0\x02" + b"\0\0\0\0\0\0\x13\x88" + b"2",
    }
    assert contents(path, "expiry") == {b"\x80\0\0\0\0\0\x13\x88t\0b": b""}
    assert contents(path, "changes") == {
        b"\0\0\0\0\0\0\0\x01": '["s",["é"],[]]'.encode(),
        b"\0\0\0\0\0\0\0\x02": b'["t",["b"],[]]',
        b"\0\0\0\0\0\0\0\x03": b'["s",["n"],["x"]]',
    }
    assert contents(path, "applied") == {
        b"is\0once": b"\0\0\0\0\0\0\0\x03" + b"\0\0\0\0\0\0\x03\xe8",
        b"t\x80\0\0\0\0\0\x03\xe8s\0once": b"",
    }
    assert contents(path, "meta") == {b"format": b"%d" % FORMAT}


def test_encoded_times_sort_and_read_back() -> None:
    times = [-(2**63), -1_000, -1, 0, 1, 255, 256, 1_767_225_600_000, NEVER]
    assert [moment_of(moment(at)) for at in times] == times
    assert sorted(map(moment, times)) == [moment(at) for at in times]
    assert HEAD.unpack(HEAD.pack(1, NEVER)) == (1, NEVER)


def test_the_ends_of_a_span_stay_in_its_space() -> None:
    spaces = ["a", "a\x01", "a b", "aa", "é"]
    for space in spaces:
        prefix = prefix_of(space)
        for span in (ALL, Span("\U0010ffff"), Span("", "\U0010ffff" * 3), Span("k\0")):
            start, stop = bounds(prefix, span)
            assert prefix <= start and stop <= prefix[:-1] + b"\1"
            assert not any(
                start <= prefix_of(other) + b"k" < stop for other in spaces if other != space
            )


def test_a_space_with_a_zero_character_is_rejected(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as engine:
            for call in (
                engine.read("a\0b", ["k"]),
                engine.scan("a\0b", ALL, limit=1),
                put(engine, "k", space="a\0b"),
            ):
                with pytest.raises(UsageError, match="space"):
                    await call

    asyncio.run(scenario())


# Settings


def test_the_log_is_synced_with_every_commit_and_once_for_a_group(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB counts the syncs of its log. Without them, the same run counts none."""
    counted: list[Options] = []

    def counting(names: Any) -> Any:
        rows, others = options(names)
        rows.enable_statistics()
        counted.append(rows)
        return rows, others

    def syncs() -> int:
        found = re.search(r"rocksdb\.wal\.synced COUNT : (\d+)", counted[-1].get_statistics() or "")
        assert found is not None
        return int(found[1])

    monkeypatch.setattr("keyhouse.engines.rocksdb.database.options", counting)

    async def scenario() -> None:
        async with opened(path) as engine:
            before = syncs()
            for number in range(10):
                await put(engine, f"k{number}")
                assert syncs() == before + number + 1
            await asyncio.gather(*(put(engine, f"k{number}") for number in range(64)))
            assert syncs() == before + 11
            assert (
                await engine.commit("s", Batch(checks=(Check("k1", 7),), puts=(Put("a", b"1"),)))
                is None
            )
            assert syncs() == before + 11
            engine.writer.database.sync = lambda: None  # type: ignore[method-assign]
            await put(engine, "not durable")
            assert syncs() == before + 11

    asyncio.run(scenario())


def test_rocksdb_runs_with_the_settings_that_durability_needs(path: Path) -> None:
    make(path, a=b"1")
    found = running_with(path)
    for line in (
        "paranoid_checks=true",
        "wal_recovery_mode=kPointInTimeRecovery",
        "manual_wal_flush=false",
        "avoid_unnecessary_blocking_io=true",
        "max_total_wal_size=67108864",
        "keep_log_file_num=3",
    ):
        assert line in found
    assert found.count("filter_policy=bloomfilter") == len(FAMILIES)
    assert (path / "rocksdict-config.json").read_text().startswith('{"raw_mode":true')


# Damage


def damage(path: Path) -> None:
    """Damage the file of the rows in its middle."""
    victim = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(victim.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2_000] = b"\xaa" * 2_000
    victim.write_bytes(data)


def test_a_scan_reports_a_damaged_row_and_does_not_end_early(path: Path) -> None:
    """The driver's own iteration ends at a damaged block as if it were the last."""
    make(path, **{f"k{number:03d}": os.urandom(600) for number in range(100)})
    damage(path)

    async def scenario() -> None:
        async with opened(path) as engine:
            for reverse in (False, True):
                with pytest.raises(UnreadableError, match="damaged"):
                    await engine.scan("s", ALL, limit=1_000, reverse=reverse)
            with pytest.raises(UnreadableError, match="damaged"):
                for number in range(100):
                    await engine.read("s", [f"k{number:03d}"])

    asyncio.run(scenario())


def test_a_check_of_a_damaged_row_fails_only_its_own_commit(path: Path) -> None:
    make(path, **{f"k{number:03d}": os.urandom(600) for number in range(100)})
    damage(path)

    async def scenario() -> None:
        async with opened(path) as engine:
            checks = [
                Batch(checks=(Check(f"k{number:03d}", None),), puts=(Put("x", b"1"),))
                for number in range(100)
            ]
            others = [Batch(adds=(Add("n", 1),))] * 10
            batches = [*checks, *others]
            answers = await asyncio.gather(
                *(engine.commit("s", batch) for batch in batches), return_exceptions=True
            )
            assert {type(answer) for answer in answers[:100]} == {type(None), UnreadableError}
            assert all(isinstance(answer, int) for answer in answers[100:])

    asyncio.run(scenario())


@pytest.mark.parametrize("victim", ["CURRENT", "MANIFEST-*"])
def test_a_damaged_database_is_reported_as_damaged(path: Path, victim: str) -> None:
    make(path, a=b"1")
    (file,) = path.glob(victim)
    file.write_bytes(b"garbage" * 100)
    with pytest.raises(UnreadableError, match="damaged"):
        RocksdbEngine.open(path)


# Expiries, changes and batch ids are cleaned up


def test_extending_an_expiry_repeatedly_leaves_one_entry(path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        async with opened(path, clock=clock) as engine:
            for number in range(50):
                await put(engine, "a", expires=10_000 + number)
            await asyncio.gather(
                *(put(engine, "a", "b", expires=20_000 + number) for number in range(50))
            )

    asyncio.run(scenario())
    assert sorted(contents(path, "expiry")) == [moment(20_049) + b"s\0a", moment(20_049) + b"s\0b"]


def test_a_row_whose_expiry_was_removed_is_not_swept(path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        async with opened(path, clock=clock) as engine:
            await put(engine, "kept", "deleted", "again", expires=2_000)
            await put(engine, "kept")
            await engine.commit("s", Batch(deletes=("deleted",)))
            await put(engine, "again", expires=3_000)
            clock.set(2_500)
            assert await engine.sweep(limit=10) == 0
            assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == [
                "again",
                "kept",
            ]
            clock.set(3_000)
            assert await engine.sweep(limit=10) == 1

    asyncio.run(scenario())
    assert contents(path, "expiry") == {}


def test_a_sweep_finds_expired_rows_after_many_stale_entries(path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        async with opened(path, clock=clock) as engine:
            keys = [f"k{number}" for number in range(3_000)]
            await put(engine, *keys, expires=1_500)
            await put(engine, *keys)
            await put(engine, "due", expires=2_000)
            clock.set(2_000)
            assert await engine.sweep(limit=10) == 1

    asyncio.run(scenario())
    assert contents(path, "expiry") == {}


def test_a_sweep_prunes_changes_and_batch_ids_and_never_the_newest(path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        async with opened(path, clock=clock, changes_kept=10) as engine:
            batches = [Batch(adds=(Add("n", 1),), id=f"id {number}") for number in range(4_100)]
            await asyncio.gather(*(engine.commit("s", batch) for batch in batches))
            clock.advance(seconds=3 * 24 * 3_600)
            assert await engine.sweep(limit=1) == 0
        async with opened(path, clock=clock, changes_kept=0) as engine:
            assert (await engine.scan("s", ALL, limit=1)).revision == 4_100
            await engine.sweep(limit=1)
            assert (await engine.scan("s", ALL, limit=1)).revision == 4_100

    asyncio.run(scenario())
    assert list(contents(path, "changes")) == [(4_100).to_bytes(8, "big")]
    assert contents(path, "applied") == {}


def test_a_batch_id_reused_after_a_day_survives_the_pruning_of_its_first_use(path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(1_000)
        async with opened(path, clock=clock) as engine:
            await engine.commit("s", Batch(adds=(Add("n", 1),), id="once"))
            clock.advance(seconds=24 * 3_600 + 1)
            second = await engine.commit("s", Batch(adds=(Add("n", 1),), id="once"))
            await engine.sweep(limit=10)
            assert await engine.commit("s", Batch(adds=(Add("n", 1),), id="once")) == second

    asyncio.run(scenario())
    assert len(contents(path, "applied")) == 2
