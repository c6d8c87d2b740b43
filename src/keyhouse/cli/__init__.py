"""The command line: `keyhouse describe`, `keyhouse explain`. One thin file for each command, output in one place.

`main` is the program. What a command knows comes from public names of the layers below.
"""

from keyhouse.cli.entry import main

__all__ = ["main"]
