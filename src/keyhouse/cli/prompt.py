"""Confirmation before a destructive command, and the message after Ctrl-C."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from keyhouse.cli.output import visible
from keyhouse.errors import UsageError

__all__ = ["confirm", "interruptible"]

_NOTHING_DONE = "Nothing was changed."
_INTERRUPTED = 130


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
    is set. `typer.confirm` does not suffice: it waits for ever if Ctrl-C arrives after the question
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
