"""The program's entry point. Every error becomes one sentence with its fields, and an exit code."""

import errno
import os
import sys

from keyhouse.advice import install_line
from keyhouse.cli.output import show_error
from keyhouse.errors import ConflictError, FullError, KeyhouseError, UnavailableError

_SERVING = ("serve", "studio", "token")
"""Commands that need the extra `serve`, which includes `cli`."""
_INTERRUPTED = 130
_NOT_FOUND = 404
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK = (*_FULL, errno.EIO, errno.EROFS)


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
        _discard_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        _discard_output()  # what is buffered cannot be written either
        show_error(_disk_error(error), as_json="--json" in sys.argv)
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
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        extra = "serve" if command in _SERVING else "cli"
        sys.exit(f"keyhouse: The command line needs typer and rich: {install_line(extra)}")
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


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _disk_error(error: OSError) -> KeyhouseError:
    """Return the error for a file of the command, or its output; engines raise their own."""
    fields = {"reason": error.strerror} | ({"file": error.filename} if error.filename else {})
    if error.errno in _FULL:
        return FullError("The disk of the file is full: free space, then run it again.", **fields)
    return UnavailableError("The file could not be written: check its disk.", **fields)


def _exit_code(error: Exception) -> int:
    if isinstance(error, ConflictError):
        return 4
    return 3 if isinstance(error, KeyhouseError) and error.status == _NOT_FOUND else 1


if __name__ == "__main__":
    main()
