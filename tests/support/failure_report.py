"""The report of a failed test: how to run it again, and the logs of what it has started.

Logs are the ends of the files in `LOGS` that were written since the test started, and of what the
commands of `program.run` wrote.
"""

import os
import shlex
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.seeds import DRAWN

LINES_MAX = 50
VARIABLES = ("TEST_TIER", "TEST_SOAK", "TEST_ENGINES", "TEST_SEED", "TEST_ORDER")
"""Variables that change the tests of a run."""

REPLAY = Path("build") / "replay"

LOGS: set[Path] = set()
"""Logs of servers that tests share, and pytest's temporary folder, where each `log` and `*.log`
is one."""

COMMANDS: list[str] = []
"""Commands of the running test, and how they ended."""


class FailureReport:
    """A plugin of pytest, in each process of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: list[str] = []
        self._started = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._ran.append(item.nodeid)
        self._started = time.time()
        COMMANDS.clear()
        DRAWN.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.append(("run it again", self._commands(item)))
            report.sections += self._logs()
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Let pytest delete a deep folder that an aborted run has left: otherwise it ends with a
        RecursionError, and shows no failure."""
        sys.setrecursionlimit(10_000)

    def _commands(self, item: pytest.Item) -> str:
        before = self._config.rootpath / REPLAY / f"{self._worker}-{len(self._ran)}.txt"
        before.parent.mkdir(parents=True, exist_ok=True)
        before.write_text("".join(f"{name}\n" for name in self._ran))
        return (
            f"{replay_command(item)}\n"
            f"{len(self._ran)} tests of its process, in their order:\n"
            f"{start(*VARIABLES[:-1])} -n 0 @{before.relative_to(self._config.rootpath)}"
        )

    @property
    def _worker(self) -> str:
        return str(getattr(self._config, "workerinput", {}).get("workerid", "main"))

    def _logs(self) -> Iterator[tuple[str, str]]:
        if COMMANDS:
            yield "commands", end("\n".join(COMMANDS))
        for path in sorted(log_files()):
            if path.stat().st_mtime >= self._started - 1:  # clocks of files are coarse
                yield f"log {path}", end(path.read_text(errors="replace"))


def log_files() -> Iterator[Path]:
    for place in LOGS:
        if place.is_file():
            yield place
        for folder, _, names in os.walk(place):
            yield from (
                Path(folder, name) for name in names if name == "log" or name.endswith(".log")
            )


def replay_command(item: pytest.Item) -> str:
    """Return the command that runs this test as it ran here."""
    words = [start(*VARIABLES), shlex.quote(item.nodeid)]
    if DRAWN and "TEST_SEED" not in os.environ:
        words.insert(0, f"TEST_SEED={DRAWN[0]}")
    function = getattr(item, "obj", None)
    seed = getattr(function, "_hypothesis_internal_use_generated_seed", None)
    if seed is not None:
        words.insert(1, f"--hypothesis-seed={seed}")
    return " ".join(words)


def start(*names: str) -> str:
    """Return the start of a command with these variables of this run, and its Python."""
    python = sys.executable.removeprefix(f"{Path.cwd()}/")
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in names if os.getenv(name)]
    return " ".join([*variables, python, "-m", "pytest"])


def end(text: str) -> str:
    """Return the last lines."""
    lines = text.splitlines()
    left_out = [f"({len(lines) - LINES_MAX} lines before)"] if len(lines) > LINES_MAX else []
    return "\n".join(left_out + lines[-LINES_MAX:])
