"""Progress of long work: one line on standard error, overwritten in place, only on a terminal."""

import os
import sys
import time
from types import TracebackType
from typing import Final

from keyhouse.cli.output import one_line, visible

__all__ = ["REPORT_SECONDS", "ProgressLine"]

REPORT_SECONDS: Final = 0.1


class ProgressLine:
    """A context manager. `update` may be called often: at most ten updates a second are shown."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._next_update = 0.0
        self._width = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write("")

    def update(self, text: str) -> None:
        if self._on_terminal and (now := time.monotonic()) >= self._next_update:
            self._next_update = now + REPORT_SECONDS
            self._write(text)

    def clear(self) -> None:
        """Erase the line, before other output."""
        self._write("")

    def print(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        print(visible(text), file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self._on_terminal and (text or self._width):
            line = one_line(text)[: _columns() - 1]
            print(
                "\r" + line.ljust(self._width) + ("" if line else "\r"),
                end="",
                file=sys.stderr,
                flush=True,
            )
            self._width = len(line)


def _columns() -> int:
    """Return the terminal's current width. A longer line would wrap, and stay."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
