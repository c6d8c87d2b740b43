"""The program's entry point. Every error becomes one sentence with its fields, and an exit code."""

import os
import sys

from keyhouse.cli.output import show_error
from keyhouse.errors import ConflictError, KeyhouseError

_INTERRUPTED = 130
_NOT_FOUND = 404


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # for terminals that lack a character
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        if os.environ.get("_KEYHOUSE_COMPLETE") == "complete_bash":
            from keyhouse.cli.completion import join_bash_words

            with join_bash_words():
                _run()
        else:
            _run()
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:  # before the command started; later it becomes a SystemExit
        print("keyhouse: Stopped.", file=sys.stderr)
        sys.exit(_INTERRUPTED)


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
        sys.exit(_exit_code(error))
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            print("keyhouse: Stopped.", file=sys.stderr)
        raise
    finally:
        sys.stdout.flush()


def _exit_code(error: Exception) -> int:
    if isinstance(error, ConflictError):
        return 4
    return 3 if isinstance(error, KeyhouseError) and error.status == _NOT_FOUND else 1


if __name__ == "__main__":
    main()
