"""`keyhouse serve` in a child process: started, called, stopped, killed."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

import httpx

from tests.support.fork_server import Command
from tests.support.program import SOURCE, ForkedProcess

JARS = "tests.serve.support.jars:service"
READY_SECONDS = 30.0
"""On a machine that is busy with other tests; the time on a quiet one is measured, not tested."""


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without settings, with the tests on the import path."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("KEYHOUSE_")}
    return bare | {"PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)])} | more


def command(*arguments: str) -> list[str]:
    """Return the arguments of a process that is started the usual way."""
    return [sys.executable, "-W", "error", "-m", "keyhouse.cli", "serve", *arguments]


def forked(
    folder: Path, arguments: Sequence[str], settings: Mapping[str, str], output: IO[str], log: Path
) -> ForkedProcess:
    """Start it from a process that has imported it, which saves a second of CPU."""
    command = Command("keyhouse.cli", ["serve", *arguments], str(folder), environment(**settings))
    with open(os.devnull) as given, log.open("a") as errors:
        return ForkedProcess(command, given.fileno(), output.fileno(), errors.fileno())


class Serving:
    """A running process. `line` is the line that it printed when it was ready."""

    def __init__(
        self, process: ForkedProcess, line: dict[str, Any], output: IO[str], log: Path
    ) -> None:
        self.process = process
        self.line = line
        self.output = output
        self.log_path = log

    @property
    def http(self) -> str:
        return str(self.line["http"])

    @property
    def nats(self) -> str:
        return str(self.line["nats"])

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return the log lines so far, without one that is being written. Every line is JSON."""
        whole, _, _ = self.log_path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.http + path, timeout=10, trust_env=False)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the process, and return its exit code."""
        self.process.send_signal(how)
        return self.process.wait(30)


@contextmanager
def serving(
    folder: Path, *arguments: str, data: str = "data", **settings: str
) -> Iterator[Serving]:
    """Start it on free ports, and wait until it is ready; with the jars, unless an argument or a
    setting names systems. It is killed at the end of the block if it still runs.
    """
    file = folder / "keyhouse.toml"
    named = any(not each.startswith("-") for each in arguments[:1]) or (
        "KEYHOUSE_SYSTEMS" in settings or (file.exists() and "systems =" in file.read_text())
    )
    asked = arguments if named else (JARS, *arguments)
    log = folder / "log"
    reading, writing = os.pipe()
    with open(reading) as lines:
        with open(writing, "w") as output:
            started = [*asked, "--data", data, "--json", *free(asked)]
            process = forked(folder, started, settings, output, log)
        try:
            line = lines.readline()
            assert line, f"it ended with {process.wait(30)}:\n{log.read_text()}"
            yield Serving(process, json.loads(line), lines, log)
        except BaseException as error:
            error.add_note(f"log of the service, last lines:\n{log.read_text()[-4_000:]}")
            raise
        finally:
            process.kill()


def free(arguments: tuple[str, ...]) -> list[str]:
    """Return arguments for free ports, where none is given."""
    flags = {"--http": "127.0.0.1:0", "--nats-port": "0"}
    return [
        word for flag, value in flags.items() if flag not in arguments for word in (flag, value)
    ]


def refused(folder: Path, *arguments: str, **settings: str) -> dict[str, Any]:
    """Return its error as JSON when it does not start: exit code 1, nothing on standard output."""
    with TemporaryDirectory() as logs, TemporaryFile("w+") as output:
        log = Path(logs) / "log"
        code = forked(folder, [*arguments, "--json"], settings, output, log).wait(60)
        output.seek(0)
        assert (code, output.read()) == (1, ""), log.read_text()
        said: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return said
