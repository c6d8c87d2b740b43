"""`keyhouse` for shell scripts: its process is forked from one that has imported it.

    python -I -S fork_client.py SOCKET ARGUMENTS...

It hands its files, folder and environment to `fork_server.py`, forwards signals, and exits as the
program does.
"""

import json
import os
import signal
import socket
import struct
import sys

_NUMBER = struct.Struct("!q")  # as in fork_server.py, whose imports take longer than this program


def main(path: str, *arguments: str) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        command = ["keyhouse.cli", arguments, os.getcwd(), dict(os.environ)]
        request = json.dumps(command).encode() + b"\n"
        server.sendall(request[socket.send_fds(server, [request], [0, 1, 2]) :])
        (process,) = _NUMBER.unpack(server.recv(_NUMBER.size))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(process, number))
        (code,) = _NUMBER.unpack(server.recv(_NUMBER.size))
    return int(code) if code >= 0 else 128 - int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
