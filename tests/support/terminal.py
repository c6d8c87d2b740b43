"""Run the real program in a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.fork_server import Command
from tests.support.program import SOURCE, ForkedProcess

_SECONDS_MAX = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")

CTRL_C = "\x03"
HANG_UP = ""
"""Typed last: closes the terminal while the program runs."""


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
    settings = {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "LINES": "24"}
    inherited = {name: os.environ[name] for name in os.environ.keys() - {"NO_COLOR", "COLUMNS"}}
    variables = inherited | settings | (environment or {})
    command = Command("keyhouse.cli", list(arguments), str(cwd), variables, on_terminal=True)
    terminal, inside = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = ForkedProcess(command, inside, inside, inside)
    os.close(inside)
    with os.fdopen(terminal, "rb", 0) as opened:
        output = _talk(terminal, list(typed))
        if typed and typed[-1][1] == HANG_UP:
            opened.close()
        try:
            status = process.wait(_SECONDS_MAX)
        finally:
            process.kill()
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
            if (text := typed.pop(0)[1]) == HANG_UP:
                return output.decode()
            os.write(terminal, text.encode())


def plain(output: str) -> str:
    """Remove the escape sequences."""
    return ESCAPES.sub("", output)
