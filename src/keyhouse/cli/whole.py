"""What the commands over whole stores share: their options, files that are whole or not there, and how to go on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from keyhouse.cli.completion import complete_space
from keyhouse.cli.target import SYSTEM_HELP, system_names
from keyhouse.errors import UsageError

Spaces = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        "-p",
        metavar="NAME",
        help="Only this space; may be given several times. Without it: all.",
        autocompletion=complete_space,
    ),
]
SystemOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="SYSTEM", help=SYSTEM_HELP + " Only --data needs it.", autocompletion=system_names
    ),
]


@contextmanager
def stoppable(how: str) -> Iterator[None]:
    """Ctrl-C: the program says how to go on, and ends."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nkeyhouse: {how}", file=sys.stderr)
        raise


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A file that is there when it is whole, and not before: until then it has another name, which is the one given."""
    if path.exists():
        raise UsageError("The file is there already: name another one.", file=str(path))
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        yield part
        os.replace(part, path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """The name is then as durable as what it names."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
