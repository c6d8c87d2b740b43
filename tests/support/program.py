"""Run the real program in a separate process."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support.fork_server import NUMBER, Command

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
TIMEOUT_SECONDS = 60
STDERR = 2


def run(
    *arguments: str,
    cwd: Path | None = None,
    code: int | None = 0,
    program: tuple[str, ...] = ("-m", "keyhouse.cli"),
    given: str | None = None,
    environment: dict[str, str] | None = None,
    only: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `keyhouse ARGUMENTS` with `given` as its input, without a terminal. `environment` is
    added to that of this process, `only` replaces it.

    Fails unless it exits with `code`; None accepts any. The program's own process is forked from
    one that has imported it; another `program` is started the usual way.
    """
    variables = os.environ if only is None else only
    variables = variables | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"} | (environment or {})
    if program == ("-m", "keyhouse.cli"):
        command = Command("keyhouse.cli", list(arguments), str(cwd or Path.cwd()), variables)
        process = _forked(command, given)
    else:
        process = subprocess.run(
            [sys.executable, "-W", "error", *program, *arguments],
            cwd=cwd,
            env=variables,
            input=given,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
        )
    assert code is None or process.returncode == code, (
        f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    )
    return process


def _forked(command: Command, given: str | None) -> subprocess.CompletedProcess[str]:
    with (
        tempfile.TemporaryFile() as given_file,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given_file.write((given or "").encode())
        given_file.seek(0)
        process = ForkedProcess(command, *(each.fileno() for each in (given_file, output, errors)))
        try:
            code = process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts: list[str] = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(command.arguments, code, *texts)


class ForkedProcess:
    """The process of a command, forked from one that has imported the program. It has the methods
    of `subprocess.Popen` that tests use; `wait` or `kill` must be called last."""

    pid: int

    def __init__(self, command: Command, given: int, output: int, errors: int) -> None:
        self.arguments = command.arguments
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(TIMEOUT_SECONDS)
        self._connection.connect(str(_fork_server()))
        request = json.dumps(command).encode() + b"\n"
        sent = socket.send_fds(self._connection, [request], [given, output, errors])
        self._connection.sendall(request[sent:])
        (self.pid,) = NUMBER.unpack(self._connection.recv(NUMBER.size))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal; subprocess.TimeoutExpired as Popen does."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                (self.returncode,) = NUMBER.unpack(self._connection.recv(NUMBER.size))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0) from None
            self._connection.close()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()


class PipedProcess(ForkedProcess):
    """`python -m MODULE ARGUMENTS`, forked, with pipes as its standard input and output."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        errors: int = STDERR,
    ) -> None:
        variables = environment or {**os.environ, "PYTHONPATH": str(SOURCE)}
        given, writing = os.pipe()
        reading, output = os.pipe()
        self.stdin = os.fdopen(writing, "wb")
        self.stdout = os.fdopen(reading, "rb")
        command = Command(module, list(arguments), str(REPOSITORY), variables)
        super().__init__(command, given, output, errors)
        os.close(given)
        os.close(output)

    def close(self) -> None:
        """Kill it if it still runs, and close the pipes."""
        self.kill()
        self.stdin.close()
        self.stdout.close()


@cache
def _fork_server() -> Path:
    """Start the server of this process; return its socket."""
    folder = tempfile.TemporaryDirectory(prefix="keyhouse-")
    path = Path(folder.name) / "fork"
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.fork_server", path],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.readline(), "the fork server has ended"

    def stop() -> None:
        with suppress(subprocess.TimeoutExpired):
            server.communicate(timeout=10)
        server.kill()
        folder.cleanup()

    atexit.register(stop)
    return path
