"""Run the real program in a separate process."""

import atexit
import json
import os
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


def run(
    *arguments: str,
    cwd: Path | None = None,
    code: int | None = 0,
    program: tuple[str, ...] = ("-m", "keyhouse.cli"),
    given: str | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `keyhouse ARGUMENTS` with `given` as its input, without a terminal.

    Fails unless it exits with `code`; None accepts any. The program's own process is forked from
    one that has imported it; another `program` is started the usual way.
    """
    variables = os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100"} | (environment or {})
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
        socket.socket(socket.AF_UNIX) as connection,
    ):
        given_file.write((given or "").encode())
        given_file.seek(0)
        connection.settimeout(TIMEOUT_SECONDS)
        connection.connect(str(_fork_server()))
        files = [each.fileno() for each in (given_file, output, errors)]
        request = json.dumps(command).encode() + b"\n"
        sent = socket.send_fds(connection, [request], files)
        connection.sendall(request[sent:])
        (process,) = NUMBER.unpack(connection.recv(NUMBER.size))
        try:
            (code,) = NUMBER.unpack(connection.recv(NUMBER.size))
        except TimeoutError:
            os.kill(process, 9)
            raise subprocess.TimeoutExpired(command.arguments, TIMEOUT_SECONDS) from None
        texts: list[str] = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(command.arguments, code, *texts)


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
