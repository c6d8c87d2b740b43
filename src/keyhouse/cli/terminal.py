"""The person at the terminal: progress of long work, confirmation before a destructive command, and
the message after Ctrl-C.

Progress is one line on standard error, overwritten in place, only on a terminal.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import typer

from keyhouse.cli.output import one_line, visible
from keyhouse.errors import UsageError

__all__ = ["REPORT_SECONDS", "ProgressLine", "confirm", "interruptible"]

REPORT_SECONDS: Final = 0.1
_NOTHING_DONE = "Nothing was changed."
_INTERRUPTED = 130


class ProgressLine:
    """A context manager. `update` may be called often: at most ten updates a second are shown, and
    the first of each phase, which is its first word."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._next_update = 0.0
        self._phase = ""
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
        if not self._on_terminal:
            return
        now, phase = time.monotonic(), text.partition(" ")[0]
        if phase != self._phase or now >= self._next_update:
            self._next_update, self._phase = now + REPORT_SECONDS, phase
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


def confirm(question: str, *, yes: bool) -> None:
    """Return if `--yes` was given or the user agrees; exit otherwise. Without a terminal, raise."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Confirmation needs a terminal: check what it would do, then add --yes.")
    if not _ask(visible(question)):
        print(_NOTHING_DONE, file=sys.stderr)
        raise typer.Exit(1)


def _ask(question: str) -> bool:
    """Ask on standard error; Ctrl-C exits with 130.

    asyncio's SIGINT handler would only cancel a task, and the read would wait, so the default one
    is set. `typer.confirm` does not suffice: it waits forever if Ctrl-C arrives after the question
    is printed and before the read starts.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _signal_pipe() as signalled:
            print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
            select.select([sys.stdin, signalled], [], [])
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(f"\n{_NOTHING_DONE}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _signal_pipe() -> Iterator[int]:
    """Yield a descriptor that becomes readable when a signal arrives."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


@contextmanager
def interruptible(message: str) -> Iterator[None]:
    """Print on Ctrl-C how to resume, then stop."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nkeyhouse: {message}", file=sys.stderr)
        raise
