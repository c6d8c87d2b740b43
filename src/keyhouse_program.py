"""The entry point of `keyhouse`, outside the package: Ctrl-C while the package is imported exits
with 130, without a traceback."""

import sys


def main() -> None:
    try:
        from keyhouse.cli.__main__ import main
    except KeyboardInterrupt:
        print("keyhouse: Stopped.", file=sys.stderr)
        sys.exit(130)
    main()
