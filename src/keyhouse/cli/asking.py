"""A question before what can't be undone."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from keyhouse.cli.output import visible
from keyhouse.errors import UsageError

_NOTHING = "Nothing was done."
_STOPPED = 130


def ask(question: str, *, yes: bool) -> None:
    """Go on when a person says so, or has said so by `--yes`. Without a person, nothing is done."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "There is nobody to ask: add --yes to do it, once you have seen what it would be."
        )
    if _answer(f"{visible(question)} [y/N] ").strip().lower() not in ("y", "yes"):
        print(_NOTHING, file=sys.stderr)
        raise typer.Exit(1)


def _answer(question: str) -> str:
    """Ctrl-C ends the program here at once, and says what is true here, not how to go on with work that never began. An
    event loop would only note it, and go on waiting for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _woken_by_signals() as woken:
            print(question, end="", file=sys.stderr, flush=True)
            select.select([sys.stdin, woken], [], [])
        return sys.stdin.readline()
    except KeyboardInterrupt:
        print(f"\n{_NOTHING}", file=sys.stderr)
        raise typer.Exit(_STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """What becomes readable when a signal comes. A read that begins just behind a signal would wait for the next one."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
