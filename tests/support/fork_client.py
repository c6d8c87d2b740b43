"""Runs a command of the program by the fork server, in place of a new interpreter: for programs and
shells that tests start, which find it as `keyhouse` on their path.

    python -I -S fork_client.py SOCKET ARGUMENT…

It imports nothing but the standard library, so that it starts in 20 milliseconds. Its files,
folder and environment are those of the command, and so is its exit code.
"""

import json
import os
import socket
import struct
import sys

NUMBER = struct.Struct("!q")


def main(path: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        command = ["keyhouse.cli", arguments, os.getcwd(), dict(os.environ)]
        request = json.dumps(command).encode() + b"\n"
        sent = socket.send_fds(connection, [request], [0, 1, 2])
        connection.sendall(request[sent:])
        connection.recv(NUMBER.size)  # its process id
        code: int = NUMBER.unpack(connection.recv(NUMBER.size))[0]
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
