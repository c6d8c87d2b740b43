"""A backup is of one moment and complete, and a restore makes the store equal to it."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Page, Put, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import ConflictError, UnreadableError, UsageError
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store import (
    BackupResult,
    MoveResult,
    back_up,
    export_rows,
    import_rows,
    read_backup,
    restore,
)
from keyhouse.testing.faults import FaultyEngine, Killed, die
from tests.store.support.filled_engines import contents, digests, fill
from tests.store.transfer.test_export_import import ODD_VALUES, hostile
from tests.support.engine_openers import OPENERS
from tests.support.polling import until


async def kept_in(path: Path, engine: Engine) -> BackupResult:
    with path.open("x+b") as file:
        return await back_up(engine, file)


async def restored(path: Path, engine: Engine, *, replace: bool = False) -> MoveResult:
    with path.open("rb") as file:
        return await restore(engine, read_backup(file, engine.clock), replace=replace)


def write_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> Path:
    changed = path.with_suffix(".changed")
    changed.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    return changed


class WrittenDuringScans(FaultyEngine):
    """An engine without snapshots; another writer commits before each scan."""

    def __init__(self, inner: Engine, write: Callable[[], Awaitable[object]], times: int) -> None:
        super().__init__(inner)
        self._write, self._times = write, times

    async def scan(self, space: str, span: Span, **options: Any) -> Page:
        if self._times and space != MARK_SPACE:
            self._times -= 1
            await self._write()
        return await super().scan(space, span, **options)


@pytest.mark.parametrize("kind", OPENERS)
def test_a_hostile_store_comes_back_whole_on_every_engine(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = MemoryEngine(clock)
        if kind in ("memory", "sqlite", "rocksdb"):  # the others store only JSON
            await hostile(source)
        await fill(source, spaces=3, rows=400)
        engine = await OPENERS[kind](tmp_path)(clock)
        await kept_in(tmp_path / "memory.jsonl", source)
        moved = await restored(tmp_path / "memory.jsonl", engine)
        assert await contents(engine) == await contents(source)
        assert await digests(engine) == await digests(source)
        backed_up = await kept_in(tmp_path / "engine.jsonl", engine)
        assert backed_up.moment == ("store" if engine.capabilities.snapshots else "space")
        assert (backed_up.rows, backed_up.spaces) == (moved.rows, len(moved.spaces))
        assert backed_up.bytes == (tmp_path / "engine.jsonl").stat().st_size
        again = MemoryEngine(clock)
        await restored(tmp_path / "engine.jsonl", again)
        assert await contents(again) == await contents(source)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "kind", [kind for kind in OPENERS if kind in ("memory", "sqlite", "rocksdb", "postgres")]
)
def test_a_backup_is_of_one_moment_while_others_write(kind: str, tmp_path: Path) -> None:
    """Each commit changes the first and last row of a space: no backup may show part of it."""

    async def scenario() -> None:
        engine = await OPENERS[kind](tmp_path)(ManualClock())
        await fill(engine, spaces=3, rows=3_000)
        done, number, commits = asyncio.Event(), 0, 0

        async def write() -> None:
            nonlocal number, commits
            while not done.is_set():
                number += 1
                for space in ("s0", "s1", "s2"):
                    puts = tuple(Put(key, b"%d" % number) for key in ("a first", "z last"))
                    await engine.commit(space, Batch(puts=puts))
                    commits += 1
                    await asyncio.sleep(0)

        writer = asyncio.create_task(write())
        await until(lambda: number >= 3)
        before = commits
        while commits == before:  # somebody must have written meanwhile
            (tmp_path / "b.jsonl").unlink(missing_ok=True)
            before = commits
            backed_up = await kept_in(tmp_path / "b.jsonl", engine)
        done.set()
        await writer
        await engine.close()
        assert backed_up.moment == "store"
        there = MemoryEngine(ManualClock())
        await restored(tmp_path / "b.jsonl", there)
        found = [
            [int(row.value) for row in await ends(there, space)] for space in ("s0", "s1", "s2")
        ]
        assert all(first == last for first, last in found)
        assert 0 <= found[0][0] - found[2][0] <= 1 and found[0][0] >= found[1][0] >= found[2][0]

    async def ends(engine: Engine, space: str) -> list[Row]:
        return [row for row in await engine.read(space, ["a first", "z last"]) if row is not None]

    asyncio.run(scenario())


def test_without_snapshots_a_space_that_was_written_is_read_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        inner = MemoryEngine(ManualClock())
        await fill(inner, spaces=2, rows=300)
        writes = 0

        async def write() -> None:
            nonlocal writes
            writes += 1
            puts = (Put("a first", b"%d" % writes), Put("z last", b"%d" % writes))
            await inner.commit("s0", Batch(puts=puts))

        backed_up = await kept_in(tmp_path / "b.jsonl", WrittenDuringScans(inner, write, 7))
        assert (backed_up.moment, backed_up.rows) == ("space", 902)
        there = MemoryEngine(inner.clock)
        await restored(tmp_path / "b.jsonl", there)
        assert await contents(there) == await contents(inner)
        with pytest.raises(ConflictError, match="stop its writers"):
            await kept_in(tmp_path / "c.jsonl", WrittenDuringScans(inner, write, 10_000))

    asyncio.run(scenario())


def test_a_file_that_was_cut_off_or_changed_restores_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        await fill(source, spaces=2, rows=50)
        await kept_in(tmp_path / "b.jsonl", source)
        changes: list[tuple[type[Exception], Callable[[list[bytes]], list[bytes]]]] = [
            (UnreadableError, lambda lines: lines[:-1]),
            (UnreadableError, lambda lines: lines[:7] + lines[8:]),
            (UnreadableError, lambda lines: [lines[0].replace(b":0}", b":9}"), *lines[1:]]),
            (UnreadableError, lambda lines: [*lines, lines[-1]]),
            (UsageError, lambda lines: [lines[1], lines[0], *lines[2:]]),
            (UsageError, lambda lines: [b"\n", *lines]),
            (UsageError, lambda lines: [*lines[:-1], b"\n", lines[-1]]),
            (UsageError, lambda lines: [*lines, b"\n", lines[0]]),
        ]
        for error, change in changes:
            target = MemoryEngine(source.clock)
            with pytest.raises(error):
                await restored(write_lines(tmp_path / "b.jsonl", change), target)
            assert await contents(target) == {}

    asyncio.run(scenario())


def test_a_store_with_other_rows_is_rejected_unless_replace(tmp_path: Path) -> None:
    async def scenario() -> None:
        source, target = MemoryEngine(ManualClock()), MemoryEngine(ManualClock())
        await fill(source, spaces=2, rows=50)
        await kept_in(tmp_path / "b.jsonl", source)
        await target.commit("s0", Batch(puts=(Put("own", b"1"),)))
        await target.commit("other", Batch(puts=(Put("own", b"1"),)))
        before = await contents(target)
        with pytest.raises(UsageError, match="has other rows"):
            await restored(tmp_path / "b.jsonl", target)
        assert await contents(target) == before
        await restored(tmp_path / "b.jsonl", target, replace=True)
        assert await contents(target) == await contents(source)
        again = await restored(tmp_path / "b.jsonl", target)
        assert again.written == 0, "the same is there already"

    asyncio.run(scenario())


def test_an_interrupted_restore_resumes_only_from_its_backup(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        await fill(source, spaces=3, rows=700)
        await kept_in(tmp_path / "b.jsonl", source)
        await source.commit("s0", Batch(puts=(Put("more", b"1"),)))
        await kept_in(tmp_path / "c.jsonl", source)
        for calls in (3, 6, 9, 12):
            target = MemoryEngine(source.clock)
            with pytest.raises(Killed):
                await restored(tmp_path / "b.jsonl", FaultyEngine(target, die(calls)))
            if await contents(target):
                with pytest.raises(UsageError, match="unfinished"):
                    await restored(tmp_path / "c.jsonl", target, replace=True)
                with pytest.raises(UsageError, match="unfinished"):
                    await kept_in(tmp_path / f"{calls}.jsonl", target)
            await restored(tmp_path / "b.jsonl", target)
            assert (await kept_in(tmp_path / f"{calls}-whole.jsonl", target)).rows == 4_200

    asyncio.run(scenario())


def test_rows_expired_since_the_backup_are_not_restored(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source, target = MemoryEngine(clock), MemoryEngine(clock)
        puts = tuple(Put(f"k{at}", b"1", clock.now() + 1_000 * (at % 3) + 500) for at in range(60))
        await source.commit("s", Batch(puts=(*puts, Put("z", b"1"))))
        await source.commit("gone", Batch(puts=(Put("k", b"1", clock.now() + 100),)))
        await kept_in(tmp_path / "b.jsonl", source)
        clock.advance(milliseconds=1_600)
        moved = await restored(tmp_path / "b.jsonl", target)
        assert moved.rows == 21
        assert await contents(target) == await contents(source)

    asyncio.run(scenario())


def test_a_backup_is_an_export_and_an_export_can_be_restored(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        await source.commit(
            "odd", Batch(puts=tuple(Put(f"k{at}", value) for at, value in enumerate(ODD_VALUES)))
        )
        await fill(source)
        await kept_in(tmp_path / "b.jsonl", source)
        out: BinaryIO = io.BytesIO()
        await export_rows(source, out.write)
        out.seek(0)
        exported = out.read().splitlines()
        assert exported[:-1] == (tmp_path / "b.jsonl").read_bytes().splitlines()[:-1]
        target, other = MemoryEngine(source.clock), MemoryEngine(source.clock)
        with (tmp_path / "b.jsonl").open("rb") as file:
            await import_rows(target, file)
        out.seek(0)
        await restore(other, read_backup(out, source.clock))
        assert await contents(target) == await contents(other) == await contents(source)

    asyncio.run(scenario())


def test_an_empty_store_can_be_backed_up_and_restored(tmp_path: Path) -> None:
    async def scenario() -> None:
        assert (await kept_in(tmp_path / "b.jsonl", MemoryEngine())).rows == 0
        target = MemoryEngine()
        assert (await restored(tmp_path / "b.jsonl", target)).rows == 0
        await fill(target)
        await restored(tmp_path / "b.jsonl", target, replace=True)
        assert await contents(target) == {}

    asyncio.run(scenario())
