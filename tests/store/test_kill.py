"""Kill a writing process with -9, again and again: nothing acknowledged is lost, no commit is torn.

A kill cannot show a write that had not reached the disk, since the system writes it anyway. The
engine's tests show that commits wait for the disk.
"""

import asyncio
import multiprocessing
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.store import Store
from tests.sizes import SOAK, size
from tests.store.support.killed_writer import write
from tests.store.support.shop_workload import SHOP, TASKS, Model, faults
from tests.support.seeds import new_seed

KILLS = size(8, 25, 125)
"""Kills in each of four tests: 32 in `make test`, 100 in `make test-all`, 500 for a release."""

ACKNOWLEDGED_PER_SECOND_MIN = 100
HANG_SECONDS = 120
UP_AGAIN_SECONDS_MAX = 5
"""In a soak: in everyday runs, other tests use the same disk and cores."""

WEAK_KILLS_MAX = 40

PROCESSES = multiprocessing.get_context("forkserver")
"""A fork server starts a process in 20 ms: it has imported everything and opened nothing."""

PROCESSES.set_forkserver_preload(["tests.store.support.killed_writer"])


class Killed:
    """A file, and the processes killed while writing to it."""

    def __init__(self, path: Path, way: str = "") -> None:
        self.path = path
        self.seed = str(new_seed())
        self.way = way
        self.models = [Model(self.seed, task) for task in range(TASKS)]
        self.acknowledged = [0] * TASKS
        self.operations = 0
        self.seconds = 0.0
        self._draw = random.Random(self.seed)

    def kill_one(self) -> None:
        """Let a process write, and kill it at a random time."""
        least, pause = self._draw.randrange(20, 120), self._draw.uniform(0, 0.004)
        pipe, acknowledgements = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(
            target=write, args=(str(self.path), self.seed, self.way, acknowledgements)
        )
        process.start()
        acknowledgements.close()
        watchdog = threading.Timer(HANG_SECONDS, process.kill)
        watchdog.start()
        with pipe, open(pipe.fileno(), "rb", closefd=False) as lines:
            acknowledged = [lines.readline()]
            began = time.monotonic()
            acknowledged += [lines.readline() for _ in range(least)]
            time.sleep(pause)
            process.kill()
            self.seconds += time.monotonic() - began
            acknowledged += lines.readlines()  # also those that came while it was being killed
        watchdog.cancel()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the process ended by itself"
        process.close()
        assert acknowledged[least], "the process did not acknowledge enough before it was killed"
        for line in acknowledged:
            if line.endswith(b"\n"):
                task, number = map(int, line.split())
                self.acknowledged[task] = number
                self.operations += 1

    async def faults(self, path: Path | None = None) -> list[str]:
        """Open the file, or a copy, and return its problems."""
        began = time.monotonic()
        engine = SqliteEngine.open(path or self.path)
        try:
            found = await faults(Store(SHOP, engine, "shop"), self.models, self.acknowledged)
        finally:
            await engine.close()
        if SOAK:
            assert time.monotonic() - began < UP_AGAIN_SECONDS_MAX
        return found

    def check_load(self) -> None:
        """Assert that the killed processes did write."""
        rate = self.operations / self.seconds
        print(f"kills={KILLS} acknowledged={self.operations} per_second={rate:.0f}")
        assert self.operations >= 20 * KILLS
        if SOAK:
            assert rate >= ACKNOWLEDGED_PER_SECOND_MIN


@pytest.mark.soak
@pytest.mark.parametrize("way", ["", "often"], ids=["with a long WAL", "amid checkpoints"])
@pytest.mark.long
def test_a_file_whose_writers_are_killed_loses_nothing_and_has_no_torn_commit(
    tmp_path: Path, way: str
) -> None:
    killed = Killed(tmp_path / "shop.db", way)
    for _ in range(KILLS):
        killed.kill_one()
        assert asyncio.run(killed.faults()) == []
    killed.check_load()


@pytest.mark.long
@pytest.mark.soak
def test_the_log_of_killed_writers_is_recovered_by_the_next(
    tmp_path: Path,
) -> None:
    """Check a copy, so that the file is never closed cleanly and its log only grows."""
    killed = Killed(tmp_path / "shop.db")
    for number in range(KILLS):
        killed.kill_one()
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        for name in ("shop.db", "shop.db-wal"):
            shutil.copyfile(tmp_path / name, copy / name)
        assert asyncio.run(killed.faults(copy / "shop.db")) == []
        shutil.rmtree(copy)
    killed.check_load()


@pytest.mark.long
@pytest.mark.soak
def test_a_process_that_has_the_file_open_sees_nothing_lost_when_the_writers_beside_it_are_killed(
    tmp_path: Path,
) -> None:
    killed = Killed(tmp_path / "shop.db")

    async def survive() -> None:
        engine = SqliteEngine.open(killed.path)
        for _ in range(KILLS):
            await asyncio.to_thread(killed.kill_one)
            assert (
                await faults(Store(SHOP, engine, "shop"), killed.models, killed.acknowledged) == []
            )
        await engine.close()

    asyncio.run(survive())
    killed.check_load()


@pytest.mark.parametrize(
    ("way", "loss"),
    [("early", "operations were acknowledged"), ("apart", "None instead of")],
    ids=["acknowledged before the commit", "derived rows apart"],
)
def test_a_weak_way_to_the_disk_is_found_out_by_killing_it(
    tmp_path: Path, way: str, loss: str
) -> None:
    killed = Killed(tmp_path / "shop.db", way)
    for kills in range(1, WEAK_KILLS_MAX + 1):
        killed.kill_one()
        if losses := [fault for fault in asyncio.run(killed.faults()) if loss in fault]:
            print(f"found out after {kills} kills: {losses[0]}")
            return
    pytest.fail(f"{WEAK_KILLS_MAX} kills lost nothing: this test could not see a loss")
