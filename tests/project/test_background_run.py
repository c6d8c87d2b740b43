"""The suite can run in the background (`nohup make test &`), where Ctrl-C is ignored."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
CTRL_C = "tests/cli/test_interruption.py::test_ctrl_c_before_the_command_starts_exits_with_130"


def test_tests_of_ctrl_c_pass_when_the_signal_is_ignored(tmp_path: Path) -> None:
    """Nine of them failed: the programs that they start inherit the ignored signal."""
    options = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    options += ["-p", "no:schemathesis", f"--basetemp={tmp_path / 'inner'}", CTRL_C]
    run = subprocess.run(
        [sys.executable, "-c", IGNORING, *options],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout
