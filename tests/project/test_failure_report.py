"""A failed test explains itself: how to run it again, and what its programs wrote."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.failure_report import LINES_MAX
from tools import steady

ROOT = Path(__file__).parents[2]
PLANTED = '''
from pathlib import Path
from hypothesis import given, strategies
from tests.support.program import run
from tests.support.seeds import new_seed

def test_passes(): pass

def test_has_a_seed():
    assert new_seed() % 2 == 2, "planted"

def test_fails(tmp_path):
    """a sentence with 'quotes'"""
    run("an argument", program=("-c", "print('was said')"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "nats-server.log").write_text("".join(f"line {n}\\n" for n in range(99)))
    assert False, "planted"

@given(strategies.integers())
def test_draws(number):
    assert number < 1_000_000
'''


def pytest_run(folder: Path, *arguments: str, **variables: str) -> str:
    """Run pytest on the planted tests with the suite's configuration, and return its output."""
    (folder / "test_planted.py").write_text(PLANTED)
    plugins = ("no:cacheprovider", "no:schemathesis", "no:langsmith_plugin", "conftest")
    command = ["-m", "pytest", "-q", *(word for name in plugins for word in ("-p", name))]
    place = [f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}", "-c", os.devnull]
    environment = os.environ | {"PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)} | variables
    environment.pop("CI", None)  # there, Hypothesis draws the same every time, without a seed
    ran = subprocess.run(
        [sys.executable, *command, *place, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return ran.stdout + ran.stderr


def test_a_failure_shows_its_replay_the_commands_it_ran_and_the_logs_it_left(
    tmp_path: Path,
) -> None:
    variables = {"TEST_TIER": "all", "TEST_ENGINES": "memory", "TEST_ORDER": "7"}
    output = pytest_run(tmp_path, "test_planted.py", **variables)
    (replay,) = re.findall(r"^.* test_planted.py::test_fails$", output, re.MULTILINE)
    start = shlex.join(f"{name}={value}" for name, value in variables.items())
    assert replay.startswith(f"{start} "), output
    assert re.search(r"--hypothesis-seed=\d+ test_planted.py::test_draws$", output, re.MULTILINE)
    assert re.search(r"^TEST_SEED=\d+ .* test_planted.py::test_has_a_seed$", output, re.MULTILINE)
    assert "'an argument'\nexit code 0\nwas said\n" in output
    assert f"({99 - LINES_MAX} lines before)\nline {99 - LINES_MAX}\n" in output
    assert "line 98" in output and "line 10\n" not in output

    first, _, last = re.findall(r"^(.*) -n 0 (@build/replay/main-\d\.txt)$", output, re.MULTILINE)
    assert "TEST_ORDER" not in last[0], "the file is the order"
    assert (tmp_path / first[1][1:]).read_text() in (tmp_path / last[1][1:]).read_text()
    again = pytest_run(tmp_path, last[1])
    assert re.findall("^FAILED .*", again) == re.findall("^FAILED .*", output)


def test_steady_reports_each_run_with_its_order_and_its_failures() -> None:
    orders = steady.plan(3, 2, seed=1)
    assert [busy for busy, _ in orders] == [0, 0, 0, steady.BUSY, steady.BUSY]
    assert [order is None for _, order in orders] == [True, False, True, False, True]
    assert orders == steady.plan(3, 2, seed=1) != steady.plan(3, 2, seed=2)

    planted = (
        "import os; print('FAILED tests/a.py::test_b[x|y] - assert 1 == 2');"
        "print('ERROR tests/a.py::test_c');"
        "print('FAILED tests/a.py::test_b[x|y] - again');"
        "print('1 failed, 2 passed, 1 error in 3.21s'); print(os.environ['TEST_ORDER']);"
        "raise SystemExit(1)"
    )
    ended = steady.run(4, 1, 77, [sys.executable, "-c", planted])
    assert ended.code == 1 and ended.output.endswith("77\n")
    cells = [cell.strip() for cell in ended.row.strip("|").split("|")]
    assert cells[:3] == ["4", "1 busy processes", "TEST_ORDER=77"]
    assert cells[5:] == [
        "1 failed, 2 passed, 1 error",
        "`tests/a.py::test_b[x&#124;y]`<br>`tests/a.py::test_c`",
    ]
    assert len(cells) == steady.HEADER.splitlines()[0].count("|") - 1
