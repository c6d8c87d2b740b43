"""A kill at any moment under load: no commit is lost or torn, and reopening is fast."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Check, Put
from keyhouse.engines.rocksdb import RocksdbEngine
from tests.engines.support.crash_writer import check
from tests.sizes import SOAK, size
from tests.support.program import STDERR, PipedProcess
from tests.support.seeds import new_seed

KILLS = size(10, 50, 500)
OPEN_SECONDS_MAX = 5.0
RATE_MIN = 100
"""Acknowledged commits per second of a soak: a slower run proves little."""


def run_and_kill(path: Path, round: int, seconds: float) -> tuple[dict[int, list[int]], float]:
    """Return the acknowledged revisions of each writer, and the duration of the run."""
    module = "tests.engines.support.crash_writer"
    with PipedProcess(module, f"rocksdb:{path}", str(round), errors=STDERR) as child:
        first = child.stdout.readline()
        start = time.monotonic()
        time.sleep(seconds)
        child.kill()
        took = time.monotonic() - start
        lines = [first, *child.stdout.read().splitlines(keepends=True)]
    acknowledged: dict[int, list[int]] = {}
    for line in lines:
        if line.endswith("\n"):
            writer, number, revision = map(int, line.split())
            assert number == len(acknowledged.setdefault(writer, []))
            acknowledged[writer].append(revision)
    return acknowledged, took


@pytest.mark.long
@pytest.mark.soak
def test_a_kill_under_load_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    dice = random.Random(new_seed())
    path = tmp_path / "rows"
    total, acknowledged_total, seconds = 0, 0, 0.0

    async def look(round: int, acknowledged: dict[int, list[int]]) -> None:
        nonlocal total
        start = time.monotonic()
        engine = RocksdbEngine.open(path)
        if SOAK:
            assert time.monotonic() - start < OPEN_SECONDS_MAX
        total += await check(engine, str(round), acknowledged)
        (row,) = await engine.read("s", ["count"])
        assert row is not None and int(row.value) == total, (
            "the counter tells other commits than the rows"
        )
        newest = max(max(revisions) for revisions in acknowledged.values())
        after = await engine.commit(
            "s", Batch(checks=(Check("count", row.revision),), puts=(Put("round", b"1"),))
        )
        assert after is not None and after > newest
        await engine.close()

    for round in range(KILLS):
        acknowledged, took = run_and_kill(path, round, dice.uniform(0.0, 0.25))
        acknowledged_total += sum(map(len, acknowledged.values()))
        seconds += took
        asyncio.run(look(round, acknowledged))
    if SOAK:
        assert acknowledged_total / seconds > RATE_MIN, (
            f"only {acknowledged_total} in {seconds:.1f} s: it proves little"
        )
    print(f"{KILLS} kills, {acknowledged_total} acknowledged, {total} found")
