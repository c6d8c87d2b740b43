"""Where the program `keyhouse` starts. It stands beside the package, because a Ctrl-C while the package is still being
loaded is an end like any other, and no traceback."""

import sys


def main() -> None:
    try:
        from keyhouse.cli import main
    except KeyboardInterrupt:
        print("keyhouse: Stopped.", file=sys.stderr)
        sys.exit(130)
    main()
