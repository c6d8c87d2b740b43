"""Confirmation before a destructive command, and the message after Ctrl-C."""

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
    """Ask with the default SIGINT handler: asyncio's would only cancel a task, and the read would
    wait."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        print(f"\n{_NOTHING_DONE}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible(message: str) -> Iterator[None]:
    """Print on Ctrl-C how to resume, then stop."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nkeyhouse: {message}", file=sys.stderr)
        raise
