"""A full disk: a clear error, no damage, and commits again once there is space."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Put
from keyhouse.engines.registry import open_engine

ROOT = Path(__file__).parents[2]
DISK = "96m"

MOUNTED = 'mount -t tmpfs -o size=$1 none $2 && shift 2 && exec "$@"'
"""Runs in a private mount namespace: the disk disappears with the process."""


def on_small_disk(
    folder: Path, *program: str, size: str = DISK
) -> subprocess.CompletedProcess[str]:
    spaces = ["unshare", "--mount", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*spaces, "true"], capture_output=True).returncode != 0
    ):
        pytest.skip("this machine does not allow a private mount (unshare)")
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [*spaces, "sh", "-c", MOUNTED, "sh", size, str(folder), *program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_an_engine_survives_a_full_disk_and_commits_again(engine: str, tmp_path: Path) -> None:
    ran = on_small_disk(
        tmp_path, sys.executable, "-m", "tests.engines.support.disk_filler", engine, str(tmp_path)
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "full three times" in ran.stdout


def test_a_backup_on_a_full_disk_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    """It was a traceback."""

    async def fill() -> None:
        engine = await open_engine(f"sqlite:{tmp_path}/rows.db")
        puts = tuple(Put(f"k{number}", b'"%s"' % (b"x" * 60_000)) for number in range(40))
        await engine.commit("a", Batch(puts=puts))
        await engine.close()

    asyncio.run(fill())
    (disk := tmp_path / "disk").mkdir()
    backup = f"keyhouse.cli backup rosey {disk}/rows.jsonl --store sqlite:{tmp_path}/rows.db"
    script = f"{sys.executable} -m {backup}; code=$?; ls {disk}; exit $code"
    ran = on_small_disk(disk, "sh", "-c", script, size="1m")
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    assert ran.stderr.startswith("keyhouse: The disk of the file is full: free space")
    assert "Traceback" not in ran.stderr
