"""How far long work has come: one line on standard error that is written over, when a person sits in front of it."""

import os
import sys
import time
from types import TracebackType
from typing import Final

from keyhouse.cli.output import one_line, visible

REPORT_SECONDS: Final = 0.1


class Line:
    """A context; `say` may be called as often as one likes."""

    def __init__(self) -> None:
        self._is_seen = sys.stderr.isatty()
        self._due = 0.0
        self._width = 0

    def __enter__(self) -> "Line":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write("")

    def say(self, text: str) -> None:
        if self._is_seen and (now := time.monotonic()) >= self._due:
            self._due = now + REPORT_SECONDS
            self._write(text)

    def clear(self) -> None:
        """Before something else is shown."""
        self._write("")

    def note(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(visible(text), file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self._is_seen and (text or self._width):
            shown = one_line(text)[: _columns() - 1]
            print(
                "\r" + shown.ljust(self._width) + ("" if shown else "\r"),
                end="",
                file=sys.stderr,
                flush=True,
            )
            self._width = len(shown)


def _columns() -> int:
    """Of the terminal as it is now. A longer line would be folded, and no longer be written over."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
