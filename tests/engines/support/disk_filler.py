"""Asserts the behaviour of an engine on a disk that fills up. Runs in a separate process and disk.

python -m tests.engines.support.disk_filler ENGINE FOLDER
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from keyhouse.engine import Add, Batch, Engine, Put, Span
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import FullError

FILLER_BYTES = 48 * 1_024 * 1_024
VALUE_BYTES = 100_000

OPENERS: dict[str, Callable[[Path], Engine]] = {
    "sqlite": lambda folder: SqliteEngine.open(folder / "rows.db"),
    "rocksdb": lambda folder: RocksdbEngine.open(folder / "rows"),
}


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        while size > 0:
            size -= file.write(b"\0" * min(size, 1_024 * 1_024))


def fill_up(path: Path) -> None:
    """Fill the disk to the last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (1_024 * 1_024, 4_096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)


async def count(engine: Engine) -> int:
    total, span, more = 0, Span.prefix("k"), True
    while more:
        page = await engine.scan("s", span, limit=100)
        total, more = total + len(page.rows), page.more
        span = span.after(page.rows[-1].key)
    return total


async def check_rows(engine: Engine, written: int) -> None:
    """Assert that exactly the acknowledged rows exist, and that the counter has their number."""
    assert await count(engine) == written
    (row,) = await engine.read("s", ["n"])
    assert row is not None and row.value == b"%d" % written


def batch(number: int) -> Batch:
    value = b'"%s"' % os.urandom(VALUE_BYTES // 2).hex().encode()
    return Batch(puts=(Put(f"k{number:05d}", value),), adds=(Add("n", 1),), id=f"id {number}")


async def write_until_full(engine: Engine, number: int) -> int:
    while True:
        try:
            await engine.commit("s", batch(number))
        except FullError as error:
            assert "make room" in str(error)
            return number
        number += 1


async def reopened_on_a_full_disk(name: str, folder: Path) -> None:
    """RocksDB needs space to open; SQLite opens and reads, and rejects commits as full."""
    try:
        engine = OPENERS[name](folder)
    except FullError as error:
        assert "make room" in str(error)
        return
    assert name == "sqlite", "RocksDB was opened on a full disk"
    with suppress(FullError):
        await engine.commit("s", Batch(puts=(Put("last", b"1"),)))
    await engine.close()


async def scenario(name: str, folder: Path) -> None:
    filler = folder / "filler"
    fill(filler, FILLER_BYTES)
    engine = OPENERS[name](folder)

    written = await write_until_full(engine, 0)
    assert written > 50
    for _ in range(20):
        results = await asyncio.gather(
            *(engine.commit("s", batch(written)) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [FullError] * 3
    await check_rows(engine, written)  # reads continue

    filler.unlink()
    assert await engine.commit("s", batch(written)) == written + 1, (
        "there is space, and the failed commit used no revision"
    )
    written += 1
    await check_rows(engine, written)

    fill(filler, FILLER_BYTES // 2)
    written = await write_until_full(engine, written)
    fill_up(folder / "more")
    await engine.close()
    fill_up(folder / "most")  # the space it released by closing
    await reopened_on_a_full_disk(name, folder)
    for file in (filler, folder / "more", folder / "most"):
        file.unlink()
    enlarge(folder)  # opening RocksDB replays the log and compacts: it may need twice the rows
    engine = OPENERS[name](folder)
    await check_rows(engine, written)
    deletes = tuple(f"k{number:05d}" for number in range(written))
    assert await engine.commit("s", Batch(deletes=deletes, adds=(Add("n", 1),))) is not None
    assert (await engine.scan("s", Span.prefix("k"), limit=1)).rows == []
    await engine.close()
    print(f"{written} commits, full three times")


if __name__ == "__main__":
    asyncio.run(scenario(sys.argv[1], Path(sys.argv[2])))
