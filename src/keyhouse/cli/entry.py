"""Where the program starts and where every error ends: as one sentence with its fields, and an exit code."""

import os
import sys
from textwrap import wrap

from keyhouse.cli.colons import colons_kept
from keyhouse.cli.output import show_error
from keyhouse.errors import ConflictError, KeyhouseError

EXIT_CODES = {
    0: "Done.",
    1: "Keyhouse says no: the message says why. Nothing was changed, unless it says so.",
    2: "The command was not understood: an unknown option, a missing argument.",
    3: "Not there: the key has no row, or it has expired.",
    4: "Conflict: the stored state says no, such as another revision than the one expected. Nothing was changed.",
    5: "Found: `verify` found what is not as it should be and is not repaired, or `migrate --dry-run` something to do.",
    130: "Stopped by Ctrl-C. What was begun was finished or left undone, never half done.",
}

_STOPPED = 130
_NOT_FOUND = 404


def exit_codes() -> str:
    """For the end of the help: as they are, line by line."""
    width = max(len(str(code)) for code in EXIT_CODES)
    lines = [
        wrap(
            meaning, 76, initial_indent=f"  {code:>{width}}  ", subsequent_indent=" " * (width + 4)
        )
        for code, meaning in EXIT_CODES.items()
    ]
    return "\n".join(["\b", "Exit codes:", *(line for each in lines for line in each)])


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal that lacks a character
    try:
        with colons_kept():
            _run()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:  # before a command began: in one, it becomes a SystemExit
        print("keyhouse: Stopped.", file=sys.stderr)
        sys.exit(_STOPPED)


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
        sys.exit(_code_of(error))
    except SystemExit as end:
        if end.code == _STOPPED:
            print("keyhouse: Stopped.", file=sys.stderr)
        raise
    finally:
        sys.stdout.flush()


def _code_of(error: Exception) -> int:
    if isinstance(error, ConflictError):
        return 4
    return 3 if isinstance(error, KeyhouseError) and error.status == _NOT_FOUND else 1
