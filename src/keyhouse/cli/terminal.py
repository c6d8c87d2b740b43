"""The person at the terminal: progress of long work, confirmation before a destructive command, and
the message after Ctrl-C.

Progress is one line on standard error, only on a terminal, and not with NO_COLOR: drawing it takes
escape sequences.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from keyhouse.cli.output import one_line, visible
from keyhouse.errors import UsageError

__all__ = ["ProgressLine", "confirm", "interruptible"]

_NOTHING_DONE = "Nothing was changed."
_INTERRUPTED = 130


class ProgressLine:
    """A context manager that shows the newest text on one line. `update` may be called often: Rich
    draws ten times a second, and at once for the first text of each phase, which is its first
    word."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._progress: Any = None
        self._phase = ""

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def update(self, text: str) -> None:
        if not self._is_shown:
            return
        if self._progress is None:
            self._progress = _one_line_progress()
            self._progress.start()
        phase = text.partition(" ")[0]
        is_new, self._phase = phase != self._phase, phase
        self._progress.update(0, description=one_line(text), refresh=is_new)

    def clear(self) -> None:
        """Erase the line, before other output."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._phase = None, ""

    def print(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        print(visible(text), file=sys.stderr, flush=True)


def _one_line_progress() -> Any:
    """Return Rich's progress with one task, whose text is cut at the width of the terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    text = Column(no_wrap=True, overflow="ellipsis")
    progress = Progress(
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False, table_column=text),
        console=Console(stderr=True),
        transient=True,
    )
    progress.add_task("", total=None)
    return progress


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
