"""What happens to RocksDB on a disk that fills up, told by asserts. Runs in a process and on a small disk of its own.

python -m tests.engines.filling FOLDER
"""

import asyncio
import os
import sys
from pathlib import Path

from keyhouse.engine import Add, Batch, Put, Span
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.errors import FullError

FILLER_BYTES = 48 * 1_024 * 1_024
VALUE_BYTES = 100_000


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        while size > 0:
            size -= file.write(b"\0" * min(size, 1_024 * 1_024))


def fill_up(path: Path) -> None:
    """To the last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (1_024 * 1_024, 4_096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass


async def count(engine: RocksdbEngine) -> int:
    total, span, more = 0, Span.prefix("k"), True
    while more:
        page = await engine.scan("s", span, limit=100)
        total, more = total + len(page.rows), page.more
        span = span.after(page.rows[-1].key)
    return total


def batch(number: int) -> Batch:
    value = os.urandom(VALUE_BYTES // 2).hex().encode()
    return Batch(puts=(Put(f"k{number:05d}", value),), adds=(Add("n", 1),), id=f"id {number}")


async def write_until_full(engine: RocksdbEngine, number: int) -> int:
    while True:
        try:
            await engine.commit("s", batch(number))
        except FullError as error:
            assert "make room" in str(error)
            return number
        number += 1


async def scenario(folder: Path) -> None:
    filler = folder / "filler"
    fill(filler, FILLER_BYTES)
    engine = RocksdbEngine.open(folder / "rows")

    written = await write_until_full(engine, 0)
    assert written > 50
    for _ in range(20):
        results = await asyncio.gather(*(engine.commit("s", batch(written)) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [FullError] * 3
    assert await count(engine) == written, "reads go on, and show what was acknowledged and nothing else"
    (row,) = await engine.read("s", ["n"])
    assert row is not None and row.value == b"%d" % written

    filler.unlink()
    revision = await engine.commit("s", batch(written))
    assert revision == written + 1, "there is room, so it is written; the failed ones have used no revision"
    assert await count(engine) == written + 1

    fill(filler, FILLER_BYTES // 2)
    written = await write_until_full(engine, written + 1)
    fill_up(folder / "more")
    await engine.close()
    try:
        RocksdbEngine.open(folder / "rows")
    except FullError as error:
        assert "make room" in str(error)
    else:
        raise AssertionError("it was opened on a disk that is full")
    filler.unlink()  # opening reads the log again, and needs room for what was in it
    engine = RocksdbEngine.open(folder / "rows")
    assert await count(engine) == written
    (row,) = await engine.read("s", ["n"])
    assert row is not None and row.value == b"%d" % written
    gone = tuple(f"k{number:05d}" for number in range(written))
    assert await engine.commit("s", Batch(deletes=gone, adds=(Add("n", 1),))) is not None
    assert (await engine.scan("s", Span.prefix("k"), limit=1)).rows == []
    await engine.close()
    print(f"{written} commits, full three times")


if __name__ == "__main__":
    asyncio.run(scenario(Path(sys.argv[1])))
