"""Where the program starts and where every error ends: as one sentence with its fields, and an exit code."""

import os
import sys

from keyhouse.cli.output import show_error
from keyhouse.errors import KeyhouseError

EXIT_CODES = {
    0: "Done.",
    1: "Keyhouse says no: the message says why. Nothing was changed, unless it says so.",
    2: "The command was not understood: an unknown option, a missing argument.",
}


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal that lacks a character
    try:
        _run()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run() -> None:
    try:
        from keyhouse.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("keyhouse: The command line needs typer and rich: pip install 'keyhouse[cli]'")
    try:
        app(prog_name="keyhouse")
    except (KeyhouseError, ImportError) as error:
        show_error(error, as_json="--json" in sys.argv)
        sys.exit(1)
    finally:
        sys.stdout.flush()
