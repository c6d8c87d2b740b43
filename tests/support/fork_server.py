"""A server that forks a process per command, with the program already imported.

The imports take most of the time of a short command, and tests run a thousand of them. The process
of a command has its own arguments, environment, folder, files and exit code, as one that is started
the usual way. Requests come over a Unix socket: the files 0 to 2 of the command, and a `Command` as
JSON. The answers are two numbers, each of 8 bytes: its process id, then its exit code, negative for
a signal. The server ends with its standard input.

    python -W error -m tests.support.fork_server SOCKET
"""

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from keyhouse.service.registry import system_names

IMPORTED = (
    *(f"keyhouse.{name}" for name in ("cli", "demo", "engines.sql", "http", "serve", "service")),
    "keyhouse.studio",
    *(f"keyhouse_{name}" for name in system_names()),
)
"""Packages whose modules are imported, with all that they import."""

NOT_IMPORTED = (".__main__", ".env", ".v0001")
"""Modules that run when they are imported."""

CLIENTS = ("httpx", "nats")
"""Imported too, for the processes of tests that are clients."""

REQUEST_BYTES_MAX = 2**20
NUMBER = struct.Struct("!q")


class Command(NamedTuple):
    module: str
    """A module, or a file."""
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    on_terminal: bool = False
    """File 0 is a terminal, which becomes that of the process."""


def main(path: Path) -> None:
    if (command := accept(path)) is None:
        return
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    # The stream of this server may be of a file, which can seek, and that of the command a pipe.
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = [sys.argv[0], *command.arguments]
    first = command.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [command.folder, *filter(None, first)]  # as `python -m` does
    try:
        if command.module.endswith(".py"):
            sys.argv[0] = command.module
            runpy.run_path(command.module, run_name="__main__")
        else:
            runpy.run_module(command.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        leave_last(end.code or 0)
    else:
        leave_last(0)


def leave_last(code: int) -> None:
    """Exit after threads and handlers have ended, without Python's finalization: it would copy
    every page of what was imported, which costs more than a short command."""

    def leave() -> None:
        gc.collect()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    LAST.append(leave)


LAST: list[Callable[[], None]] = []
atexit.register(lambda: [leave() for leave in LAST])  # the first that is registered runs last


def accept(path: Path) -> Command | None:
    """Accept commands until the standard input is closed. Return the command in its own process,
    and None in the server."""
    assert threading.active_count() == 1, "threads do not survive a fork"
    waking, ended = socket.socketpair()  # a signal of an ended process
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    clients: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(16)
        print("listening", flush=True)
        while sys.stdin not in (ready := select.select([listening, ended, sys.stdin], [], [])[0]):
            if ended in ready:
                ended.recv(REQUEST_BYTES_MAX)
                report_ends(clients)
            if listening in ready:
                connection, _ = listening.accept()
                if (command := start(connection, clients)) is not None:
                    for each in (listening, waking, ended, connection, *clients.values()):
                        each.close()
                    return command
    return None


def start(connection: socket.socket, clients: dict[int, socket.socket]) -> Command | None:
    """Fork the process of a command. Return the command in it."""
    data, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
    while not data.endswith(b"\n"):
        if not (more := connection.recv(REQUEST_BYTES_MAX)):
            connection.close()
            return None  # the client has gone
        data += more
    process = os.fork()
    if process == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        command = Command(*json.loads(data))
        if command.on_terminal:
            os.setsid()
            fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        open_streams()
        return command
    for file in files:
        os.close(file)
    clients[process] = connection
    answer(connection, process)
    return None


def open_streams() -> None:
    """Open the standard streams again, as Python does when it starts."""
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def report_ends(clients: dict[int, socket.socket]) -> None:
    """Tell the clients of ended processes."""
    for process in list(clients):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            with clients.pop(process) as connection:
                answer(connection, os.waitstatus_to_exitcode(status))


def answer(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # the client has gone
        connection.sendall(NUMBER.pack(number))


def import_program() -> None:
    for engine in ("memory", "sqlite", "postgres", "jetstream"):
        import_module(f"keyhouse.engines.{engine}")
    for name in IMPORTED:
        package = import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(NOT_IMPORTED):
                import_module(module.name)
    for name in CLIENTS:
        import_module(name)
    gc.collect()
    gc.freeze()  # a process that looks at all objects copies their pages


if __name__ == "__main__":
    import_program()
    main(Path(sys.argv[1]))
