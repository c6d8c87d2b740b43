"""Run the real program in a separate process."""

import atexit
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from tests.support.failure_report import COMMANDS
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

    Fails unless it exits with `code`; None accepts any. The process of Keyhouse, or of a file with
    a `program`, is forked from one that has imported it; another is started the usual way.
    """
    variables = os.environ if only is None else only
    variables = variables | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"} | (environment or {})
    if program == ("-m", "keyhouse.cli") or program[0].endswith(".py"):
        command = Command(program[-1], list(arguments), str(cwd or Path.cwd()), variables)
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
    ended = f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    COMMANDS.append(f"$ {shlex.join([*program, *arguments])}\n{ended}")
    assert code is None or process.returncode == code, ended
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
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()


class PipedProcess(ForkedProcess):
    """`python -m MODULE ARGUMENTS`, forked, with pipes in text mode as `subprocess.Popen` has them.
    `environment` replaces that of this process; `errors` is a file in place of the pipe of its
    standard error. Leaving its block kills it."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        cwd: Path = REPOSITORY,
        environment: dict[str, str] | None = None,
        errors: int | None = None,
    ) -> None:
        variables = environment or {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = Command(module, list(arguments), str(cwd), variables)
        (given, stdin), (stdout, output), (stderr, piped) = os.pipe(), os.pipe(), os.pipe()
        super().__init__(command, given, output, piped if errors is None else errors)
        for file in (given, output, piped):
            os.close(file)
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self.stderr = os.fdopen(stderr, encoding="utf-8")

    def communicate(self, given: str = "", timeout: float = TIMEOUT_SECONDS) -> tuple[str, str]:
        """Write this input, and return the rest of both outputs when the process has ended."""
        with suppress(BrokenPipeError):
            self.stdin.write(given)
            self.stdin.close()
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(file.read) for file in (self.stdout, self.stderr)]
            self.wait(timeout)
            return texts[0].result(), texts[1].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill it if it still runs, and close the pipes."""
        self.kill()
        for file in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):
                file.close()


def started(
    *arguments: str, cwd: Path = REPOSITORY, environment: dict[str, str] | None = None
) -> PipedProcess:
    """Start `keyhouse ARGUMENTS`."""
    return PipedProcess("keyhouse.cli", *arguments, cwd=cwd, environment=environment)


def write_program(folder: Path) -> Path:
    """Write `keyhouse` into a folder for a PATH: a script whose commands are forked as those of
    `run`. A command that is to be killed needs its own interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    client = Path(__file__).with_name("fork_client.py")
    words = [sys.executable, "-I", "-S", str(client), str(_fork_server())]
    path = folder / "keyhouse"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    return path


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
