"""Run the real program in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def run(
    *arguments: str,
    cwd: Path | None = None,
    code: int | None = 0,
    program: tuple[str, ...] = ("-m", "keyhouse.cli"),
    given: str | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`keyhouse ARGUMENTS`, which must end with this exit code (`None`: any). Its output is no terminal. `given` is its
    input."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"} | (environment or {}),
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert code is None or ran.returncode == code, (
        f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    )
    return ran
