"""Run the real program in a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.program import SOURCE

_SECONDS_MAX = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")

CTRL_C = "\x03"


def on_terminal(
    *arguments: str,
    cwd: Path,
    typed: Sequence[tuple[str, str]] = (),
    columns: int = 80,
    environment: dict[str, str] | None = None,
    code: int = 0,
) -> str:
    """Run `keyhouse ARGUMENTS` in a terminal of this width, and return its output.

    `typed` has pairs: an output to wait for, and the text to type then.
    """
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover  # the child becomes the program
        os.chdir(cwd)
        settings = {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "LINES": "24"} | (
            environment or {}
        )
        os.environ.pop("NO_COLOR", None)
        os.environ.pop("COLUMNS", None)
        os.execve(
            sys.executable,
            [sys.executable, "-W", "error::ResourceWarning", "-m", "keyhouse.cli", *arguments],
            os.environ | settings,
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    output = _talk(terminal, list(typed))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    assert status == code, f"exit code {status}\n{output}"
    return output.replace("\r\n", "\n")


def _talk(terminal: int, typed: list[tuple[str, str]]) -> str:
    output, deadline, searched = b"", time.monotonic() + _SECONDS_MAX, 0
    while True:
        assert time.monotonic() < deadline, f"still running: {output!r}"
        ready, _, _ = select.select([terminal], [], [], 1)
        if not ready:
            continue
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # on Linux, the end of the terminal
            piece = b""
        if not piece:
            assert not typed, f"the program ended before {typed[0][0]!r}: {output!r}"
            return output.decode()
        output += piece
        if typed and (at := output.find(typed[0][0].encode(), searched)) >= 0:
            searched = at + len(typed[0][0].encode())
            os.write(terminal, typed.pop(0)[1].encode())


def plain(output: str) -> str:
    """Remove the escape sequences."""
    return ESCAPES.sub("", output)
