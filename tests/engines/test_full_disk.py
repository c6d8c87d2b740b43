"""A full disk: a clear error, no damage, and commits again once there is space."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISK = "96m"

MOUNTED = 'mount -t tmpfs -o size=$1 none $2 && shift 2 && exec "$@"'
"""Runs in a private mount namespace: the disk disappears with the process."""


def on_small_disk(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    spaces = ["unshare", "--mount", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*spaces, "true"], capture_output=True).returncode != 0
    ):
        pytest.skip("this machine does not allow a private mount (unshare)")
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [*spaces, "sh", "-c", MOUNTED, "sh", DISK, str(folder), *program],
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
