"""A server that forks a process per command, with the program already imported.

The imports take most of the time of a short command, and tests run a thousand of them. The process
of a command has its own arguments, environment, folder, files and exit code, as one that is started
the usual way. Requests come over a Unix socket: the files 0 to 2 of the command, and as JSON
`[module, arguments, folder, environment]`. The answers are two numbers, each of 8 bytes: its
process id, then its exit code, negative for a signal. The server ends with its standard input.

    python -W error -m tests.support.fork_server SOCKET
"""

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
import threading
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

IMPORTED = ("cli.commands", "http", "serve", "service", "studio", "systems")
"""Packages whose modules are imported, with all that they import."""

CLIENTS = ("httpx", "nats")
"""Imported too, for the processes of tests that are clients."""

REQUEST_BYTES_MAX = 2**20
NUMBER = struct.Struct("!q")


class Command(NamedTuple):
    module: str
    arguments: list[str]
    folder: str
    environment: dict[str, str]


def main(path: Path) -> None:
    if (command := accept(path)) is None:
        return
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    sys.argv = [sys.argv[0], *command.arguments]
    first = command.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [command.folder, *filter(None, first)]  # as `python -m` does
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)


def accept(path: Path) -> Command | None:
    """Accept commands until the standard input is closed. Return the command in its own process,
    and None in all others."""
    assert threading.active_count() == 1, "threads do not survive a fork"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the process of a connection
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(16)
        print("listening", flush=True)
        while listening in select.select([listening, sys.stdin], [], [])[0]:
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    listening.close()
                    return serve(connection)
    return None


def serve(connection: socket.socket) -> Command | None:
    """Fork the process of a command, and wait for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
    while not data.endswith(b"\n"):
        if not (more := connection.recv(REQUEST_BYTES_MAX)):
            return None  # the client has gone
        data += more
    process = os.fork()
    if process == 0:
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        connection.close()
        return Command(*json.loads(data))
    for file in files:
        os.close(file)
    connection.sendall(NUMBER.pack(process))
    _, status = os.waitpid(process, 0)
    connection.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
    return None


def import_program() -> None:
    import_module("keyhouse.engines.sqlite")
    for name in IMPORTED:
        package = import_module(f"keyhouse.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    for name in CLIENTS:
        import_module(name)
    gc.collect()
    gc.freeze()  # a process that looks at all objects copies their pages


if __name__ == "__main__":
    import_program()
    main(Path(sys.argv[1]))
