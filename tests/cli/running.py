"""Run the real program in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def run(
    *arguments: str, cwd: Path | None = None, code: int = 0, program: tuple[str, ...] = ("-m", "keyhouse.cli")
) -> subprocess.CompletedProcess[str]:
    """`keyhouse ARGUMENTS`, which must end with this exit code. Its output is no terminal."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert ran.returncode == code, f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran
