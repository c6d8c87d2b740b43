"""Files of a store are created for their owner only, also in a folder that all may read."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Put
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from tests.support.nats_servers import own_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def open_to_others(folder: Path) -> list[str]:
    """Return the files that other users can reach and read."""
    found = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if (Path(path) / name).stat().st_mode & 0o055]
        found += [name for name in files if (Path(path) / name).stat().st_mode & 0o077]
    return found


def test_a_sqlite_file_and_its_wal_are_private(folder: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(folder / "rows.db")
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        assert len(list(folder.iterdir())) == 3
        assert open_to_others(folder) == []
        await engine.close()

    asyncio.run(scenario())


def test_the_mode_of_an_existing_sqlite_file_is_kept(folder: Path) -> None:
    file = folder / "rows.db"
    file.touch(0o640)
    file.chmod(0o640)
    engine = SqliteEngine.open(file)
    asyncio.run(engine.close())
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_rocksdb_folder_is_private(folder: Path) -> None:
    async def scenario() -> None:
        engine = RocksdbEngine.open(folder / "rows")
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        assert open_to_others(folder) == []
        await engine.close()

    asyncio.run(scenario())


def test_the_folder_of_the_nats_server_is_private(folder: Path) -> None:
    with own_server(folder / "nats"):
        assert open_to_others(folder) == []
