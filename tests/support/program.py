"""Run the real program in a separate process."""

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
    """Run `keyhouse ARGUMENTS` with `given` as its input, without a terminal.

    Fails unless it exits with `code`; None accepts any.
    """
    process = subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"} | (environment or {}),
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert code is None or process.returncode == code, (
        f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    )
    return process
