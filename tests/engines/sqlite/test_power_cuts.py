"""Power is cut at any moment: no acknowledged commit is lost, none is torn.

SQLite writes through a VFS that records its writes and syncs; images of what a disk may have kept
are opened again. With a weaker setting they must have lost commits, or the test shows nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.sqlite import SqliteEngine, connections
from keyhouse.errors import KeyhouseError
from tests.engines.support.recorded_disk import PowerCut, RecordedDisk, power_cuts
from tests.sizes import size
from tests.support.seeds import new_seed

COMMITS = 120
IMAGES = size(200, 2_000, 100_000)
ROWS = 3
"""Of one commit, each with its number: some are missing only if the commit is torn."""

WEAK = {
    "synchronous = NORMAL": "PRAGMA synchronous = NORMAL",
    "synchronous = OFF": "PRAGMA synchronous = OFF",
}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedDisk]:
    disk = RecordedDisk("recorded")
    monkeypatch.setattr(connections, "Connection", disk.connect)
    yield disk
    disk.unregister()


@pytest.mark.soak
def test_no_image_after_a_power_cut_has_lost_or_torn_a_commit(
    disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    random = Random(new_seed())
    record(disk, tmp_path / "recorded")
    monkeypatch.undo()  # images are opened with SQLite's own VFS
    assert problems(disk, IMAGES, random, tmp_path / "image") == []


@pytest.mark.parametrize("setting", WEAK)
def test_the_same_images_of_a_weaker_setting_have_lost_commits(
    setting: str, disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weaker = f"{connections.WRITER_SETTINGS};{WEAK[setting]}"
    monkeypatch.setattr(connections, "WRITER_SETTINGS", weaker)
    record(disk, tmp_path / "recorded")
    monkeypatch.undo()
    lost = problems(disk, 40, Random(new_seed()), tmp_path / "image")
    assert any("lost" in problem for problem in lost)


def record(disk: RecordedDisk, folder: Path) -> None:
    """Write commits of several rows, some of them at once, with a checkpoint in between."""

    async def write() -> None:
        engine = SqliteEngine.open(folder / "rows.db")

        async def commit(number: int) -> None:
            value = f"{number}".encode() * random.choice((1, 100, 2_000))
            puts = tuple(Put(f"{number:04d}-{row}", value) for row in range(ROWS))
            await engine.commit("s", Batch(puts=puts))
            disk.acknowledge(number)

        random = Random(1)
        number = 0
        while number < COMMITS:
            together = random.choice((1, 1, 8))
            await asyncio.gather(*(commit(number + at) for at in range(together)))
            number += together
        await engine.close()

    folder.mkdir()
    asyncio.run(write())


def problems(disk: RecordedDisk, images: int, random: Random, folder: Path) -> list[str]:
    async def open_all() -> list[str]:
        return [
            problem
            for cut in power_cuts(disk.events, images, random)
            async for problem in problems_of(cut, disk, folder)
        ]

    folder.mkdir()
    return asyncio.run(open_all())


async def problems_of(cut: PowerCut, disk: RecordedDisk, folder: Path) -> AsyncIterator[str]:
    for file in folder.iterdir():
        file.unlink()
    for name, content in cut.files.items():
        (folder / name).write_bytes(content)
    acknowledged = [event.offset for event in disk.events if event.kind == "acknowledge"]
    try:
        keys = await stored(folder / "rows.db")
    except (KeyhouseError, apsw.Error) as error:
        yield f"the file does not open: {error!r}"
        return
    rows = [key.partition("-")[0] for key in keys]
    for number in sorted(set(rows)):
        if rows.count(number) != ROWS:
            yield f"commit {number} is torn: {rows.count(number)} of {ROWS} rows"
    for lost in {f"{number:04d}" for number in acknowledged[: cut.acknowledged]} - set(rows):
        yield f"commit {lost} is lost"


async def stored(path: Path) -> list[str]:
    engine = SqliteEngine.open(path)
    try:
        page = await engine.scan("s", Span(), limit=ROWS * COMMITS * 2, keys_only=True)
        return [row.key for row in page.rows]
    finally:
        await engine.close()
